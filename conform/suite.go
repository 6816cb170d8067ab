package conform

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/tests/golden/oracle"
)

//go:embed cases/*.txt expect/*.txt expect/*.jsonl
var files embed.FS

// Suite is the cases with their reference records and the expectations of one profile.
type Suite struct {
	Profile string
	Cases   []*Case
	// Repeat is how often a case that fails is carried out again: for devices in real
	// time, where a busy machine makes things late.
	Repeat int
	// Foreign says that the device is not of this module: vendor_err is its own affair.
	Foreign bool
	// reference holds the record that each case is compared with, measured on a real device.
	reference map[string]*Record
	exp       *expectations
	extra     []string // cases that Expect said something about
}

// Profiles are the kinds of device that there are expectations for.
var Profiles = []string{"ibta", "rdmavt", "rxe"}

// Load reads the embedded suite for a profile.
func Load(profile string) (*Suite, error) {
	if !slices.Contains(Profiles, profile) {
		return nil, fmt.Errorf("conform: no expectations for profile %q", profile)
	}
	s := &Suite{Profile: profile, reference: map[string]*Record{}}
	names, err := files.ReadDir("cases")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, n := range names {
		b, err := files.ReadFile("cases/" + n.Name())
		if err != nil {
			return nil, err
		}
		cases, err := Parse(n.Name(), string(b))
		if err != nil {
			return nil, fmt.Errorf("conform: %w", err)
		}
		for _, c := range cases {
			if seen[c.Name] {
				return nil, fmt.Errorf("conform: %s: case %s exists already", c.File, c.Name)
			}
			seen[c.Name] = true
		}
		s.Cases = append(s.Cases, cases...)
	}
	measured, err := files.ReadFile("expect/measured.jsonl")
	if err != nil {
		return nil, err
	}
	for _, records := range [][]byte{oracle.SoftRoCE61, measured} {
		if err := s.readReference(records); err != nil {
			return nil, err
		}
	}
	text, err := files.ReadFile("expect/" + profile + ".txt")
	if err != nil {
		return nil, err
	}
	s.exp, err = parseExpectations(profile+".txt", string(text))
	if err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	return s, nil
}

func (s *Suite) readReference(jsonl []byte) error {
	dec := json.NewDecoder(bytes.NewReader(jsonl))
	for dec.More() {
		r := &Record{}
		if err := dec.Decode(r); err != nil {
			return fmt.Errorf("conform: reference records: %w", err)
		}
		if s.reference[r.Scenario] != nil {
			return fmt.Errorf("conform: two reference records of %s", r.Scenario)
		}
		s.reference[r.Scenario] = r
	}
	return nil
}

// Expect adds expectations for a device that is not just of a profile: a driver or a
// library stands between, say. The format is that of expect/PROFILE.txt; what the text
// says of a cell replaces what the profile says.
func (s *Suite) Expect(file, text string) error {
	extra, err := parseExpectations(file, text)
	if err == nil {
		s.extra = append(s.extra, extra.order...)
		err = s.exp.add(file, text)
	}
	if err != nil {
		return fmt.Errorf("conform: %w", err)
	}
	for _, name := range extra.order {
		if s.reference[name] == nil {
			return fmt.Errorf("conform: %s: there is no case %s", file, name)
		}
	}
	return nil
}

// Expected returns the cases that Expect said something about.
func (s *Suite) Expected() []string { return s.extra }

// MakeDUT makes a fresh device for a case.
type MakeDUT func() (DUT, error)

// Run carries out the cases whose name keep accepts. The error says what is wrong with
// the suite; what is wrong with the device is in the results.
func (s *Suite) Run(dut MakeDUT, keep func(name string) bool) (*Report, error) {
	rep := &Report{Profile: s.Profile}
	for _, c := range s.Cases {
		if keep != nil && !keep(c.Name) {
			continue
		}
		res, err := s.runOne(dut, c)
		for i := 0; i < s.Repeat && err == nil && res.Verdict == Fail; i++ {
			res, err = s.runOne(dut, c)
		}
		if err != nil {
			return nil, fmt.Errorf("conform: case %s: %w", c.Name, err)
		}
		rep.Results = append(rep.Results, res)
	}
	return rep, nil
}

func (s *Suite) runOne(dut MakeDUT, c *Case) (*Result, error) {
	d, err := dut()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if missing := lacks(d, c); missing != "" {
		return &Result{Case: c.Name, What: c.What, Reqs: c.Reqs, Verdict: Skip, Reason: "the device offers no " + missing}, nil
	}
	got, err := runCase(d, c)
	if err != nil {
		return nil, err
	}
	ref := s.reference[c.Name]
	if ref == nil {
		return nil, fmt.Errorf("it has no reference record; this device answered:\n%s", got.json())
	}
	return s.judge(c, ref, &got), nil
}

// lacks names a need of the case that the device does not meet.
func lacks(d DUT, c *Case) string {
	if _, ok := d.(Network); !ok && len(c.Needs) > 0 {
		return c.Needs[0]
	}
	return ""
}

func (o *outcome) json() string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(&o.Record) // strings and a number: it cannot fail
	return b.String()
}

// RunProfile runs the suite on this module's engine with a profile.
func RunProfile(prof qp.Profile, keep func(name string) bool) (*Report, error) {
	s, err := Load(prof.Name)
	if err != nil {
		return nil, err
	}
	return s.Run(func() (DUT, error) { return NewDevice(prof) }, keep)
}
