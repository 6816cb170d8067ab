package conform

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

func profile(t *testing.T, name string) qp.Profile {
	t.Helper()
	p, ok := qp.ProfileByName(name)
	require.True(t, ok)
	return p
}

// TestConformance runs every case in the three profiles: no unexplained difference.
func TestConformance(t *testing.T) {
	for _, name := range Profiles {
		t.Run(name, func(t *testing.T) {
			rep, err := RunProfile(profile(t, name), nil)
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(rep.Results), 96)
			for _, c := range rep.Results {
				if c.Verdict == Fail || c.Verdict == Skip {
					t.Errorf("%s [%s]:\n%s", c.Case, c.What, strings.Join(c.Explain(false), "\n"))
				}
			}
			t.Logf("%d as the reference, %d explained", rep.Count(Pass), rep.Count(Explained))
		})
	}
}

// TestRXEIsTheKernel pins what profile rxe may differ in at all.
func TestRXEIsTheKernel(t *testing.T) {
	rep, err := RunProfile(qp.ProfileRXE, nil)
	require.NoError(t, err)
	var differ []string
	for _, c := range rep.Results {
		if c.Verdict != Pass {
			differ = append(differ, c.Case)
		}
	}
	require.Len(t, rep.Results, 109)
	require.Equal(t, []string{"sqd", "send_inv", "mw_range", "short_read_response", "uc_srq_cut"}, differ)
}

// TestSuiteBites turns one field of a profile or its driver round at a time: the suite
// must notice.
func TestSuiteBites(t *testing.T) {
	for _, f := range []struct {
		profile string
		what    string
		edit    func(*qp.Profile)
		fails   string // the case that must notice
	}{
		{"rxe", "RecvGRHFlag", func(p *qp.Profile) { p.RecvGRHFlag = false }, "send_basic"},
		{"rxe", "SendImmFlag", func(p *qp.Profile) { p.SendImmFlag = false }, "all_ops"},
		{"rxe", "BadLKeyStatus", func(p *qp.Profile) { p.BadLKeyStatus = ib.WCLocProtErr }, "loc_prot_send"},
		{"rxe", "UCErrorKillsQP", func(p *qp.Profile) { p.UCErrorKillsQP = false }, "loc_len_recv_uc"},
		{"ibta", "SRQAbort", func(p *qp.Profile) { p.SRQAbort = ib.WCSuccess }, "uc_srq_cut"},
		{"rdmavt", "SRQAbort", func(p *qp.Profile) { p.SRQAbort = ib.WCRemAbortErr }, "ud_srq_small"},
		{"rxe", "UDQKeyVerbatim", func(p *qp.Profile) { p.UDQKeyVerbatim = false }, "ud_qkey_highbit"},
		{"rxe", "RecvErrFlushes", func(p *qp.Profile) { p.RecvErrFlushes = true }, "post_in_err"},
		{"rxe", "CQErrorKillsQP", func(p *qp.Profile) { p.CQErrorKillsQP = true }, "cq_overrun"},
		{"rxe", "LastWQE", func(p *qp.Profile) { p.LastWQE = true }, "srq_last_wqe"},
		{"ibta", "CommEst", func(p *qp.Profile) { p.CommEst = false }, "peer_rtr"},
		{"ibta", "ReqAccessErr", func(p *qp.Profile) { p.ReqAccessErr = false }, "rem_access_write"},
		{"ibta", "EnforceDestRd", func(p *qp.Profile) { p.EnforceDestRd = false }, "rd_atomic_over"},
		{"ibta", "RecvTooSmall", func(p *qp.Profile) { p.RecvTooSmall = ib.WCLocQPOpErr }, "loc_len_recv"},
		{"ibta", "SQEOnSendError", func(p *qp.Profile) { p.SQEOnSendError = false }, "uc_send_error"},
		{"ibta", "UDTooLongAtPost", func(p *qp.Profile) { p.UDTooLongAtPost = false }, "ud_over_mtu"},
		{"rdmavt", "BadKeyAtPost", func(p *qp.Profile) { p.BadKeyAtPost = false }, "other_pd_lkey"},
		{"rdmavt", "ErrorWCFilled", func(p *qp.Profile) { p.ErrorWCFilled = false }, "rnr_0"},
		{"rdmavt", "RQKeptOnReset", func(p *qp.Profile) { p.RQKeptOnReset = false }, "reset_clears"},
		{"rdmavt", "SendInvBadIgnored", func(p *qp.Profile) { p.SendInvBadIgnored = false }, "send_inv_bad"},
	} {
		t.Run(f.profile+"/"+f.what, func(t *testing.T) {
			p := profile(t, f.profile)
			f.edit(&p)
			rep, err := RunProfile(p, func(name string) bool { return name == f.fails })
			require.NoError(t, err)
			require.Equal(t, 1, rep.Count(Fail), "%s did not notice", f.fails)
		})
	}
}

// TestDriverBites does the same with the driver's fields.
func TestDriverBites(t *testing.T) {
	for _, f := range []struct {
		profile, what string
		edit          func(*qp.Driver)
		fails         string
	}{
		{"rxe", "RoundSizes", func(d *qp.Driver) { d.RoundSizes = false }, "create_caps"},
		{"rxe", "Unchecked", func(d *qp.Driver) { d.Unchecked = 0 }, "bad_attrs"},
		{"rxe", "LateLocalCheck", func(d *qp.Driver) { d.LateLocalCheck = false }, "loc_prot_atomic_ro"},
		{"rxe", "RecvOverflowKills", func(d *qp.Driver) { d.RecvOverflowKills = false }, "recv_cq_overrun"},
		{"rxe", "StrayReadStatus", func(d *qp.Driver) { d.StrayReadStatus = 0 }, "stray_read_response"},
		{"rxe", "InvalidReqStatus", func(d *qp.Driver) { d.InvalidReqStatus = 0 }, "sequence_error"},
		{"rxe", "RemoteRKeyOnly", func(d *qp.Driver) { d.RemoteRKeyOnly = false }, "reg_mr_flags"},
		{"rdmavt", "Unchecked", func(d *qp.Driver) { d.Unchecked = 0 }, "bad_attrs"},
		{"rdmavt", "DestRdStored", func(d *qp.Driver) { d.DestRdStored = false }, "dest_rd_atomic_0"},
		{"rdmavt", "AtomicAlignLocal", func(d *qp.Driver) { d.AtomicAlignLocal = false }, "atomic_misaligned"},
	} {
		t.Run(f.profile+"/"+f.what, func(t *testing.T) {
			s, err := Load(f.profile)
			require.NoError(t, err)
			drv := qp.DriverByName(f.profile)
			f.edit(&drv)
			rep, err := s.Run(func() (DUT, error) { return newDevice(profile(t, f.profile), drv) }, func(name string) bool { return name == f.fails })
			require.NoError(t, err)
			require.Equal(t, 1, rep.Count(Fail), "%s did not notice", f.fails)
		})
	}
}

// TestExpectations: each entry names a case that exists and a requirement that exists,
// and each requirement of a case does.
func TestExpectations(t *testing.T) {
	known := requirements(t)
	for _, name := range Profiles {
		s, err := Load(name)
		require.NoError(t, err)
		cases := map[string]bool{}
		for _, c := range s.Cases {
			cases[c.Name] = true
			require.NotEmpty(t, c.What, c.Name)
			require.NotEmpty(t, c.Reqs, c.Name)
			for _, id := range c.Reqs {
				require.True(t, known[id], "%s cites %s, which does not exist", c.Name, id)
			}
			require.NotNil(t, s.reference[c.Name], c.Name)
			require.Equal(t, s.reference[c.Name].What, c.What)
		}
		for n := range s.reference {
			require.True(t, cases[n], "reference record of %s, which is no case", n)
		}
		for _, n := range s.exp.order {
			require.True(t, cases[n], "%s.txt explains %s, which is no case", name, n)
			for _, d := range s.exp.cases[n] {
				require.True(t, known[d.req] || name == "rxe" && d.req == "kernel", "%s.txt:%d cites %s, which does not exist", name, d.line, d.req)
				require.NotEmpty(t, d.cells, "%s.txt:%d covers no cell", name, d.line)
			}
		}
		for _, g := range s.exp.general {
			require.True(t, known[g.req], g.req)
		}
	}
}

func requirements(t *testing.T) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob("../spec/*.md")
	require.NoError(t, err)
	known := map[string]bool{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^- \*\*([A-Z0-9-]+)\*\*`).FindAllSubmatch(b, -1) {
			known[string(m[1])] = true
		}
	}
	require.NotEmpty(t, known)
	return known
}

// TestDeterministic: the same run gives the same bytes.
func TestDeterministic(t *testing.T) {
	var first []byte
	for range 2 {
		rep, err := RunProfile(qp.ProfileIBTA, nil)
		require.NoError(t, err)
		var b bytes.Buffer
		require.NoError(t, rep.WriteJUnit(&b))
		for _, c := range rep.Results {
			b.WriteString(strings.Join(c.Explain(true), "\n"))
		}
		if first != nil {
			require.Equal(t, string(first), b.String())
		}
		first = b.Bytes()
	}
}

func TestJUnit(t *testing.T) {
	p := qp.ProfileRXE
	p.RecvGRHFlag = false
	rep, err := RunProfile(p, func(name string) bool { return strings.HasPrefix(name, "s") })
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, rep.WriteJUnit(&b))
	var got struct {
		Failures int     `xml:"failures,attr"`
		Time     float64 `xml:"time,attr"`
		Suite    struct {
			Cases []struct {
				Name    string  `xml:"name,attr"`
				Time    float64 `xml:"time,attr"`
				Failure *struct {
					Text string `xml:",chardata"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(b.Bytes(), &got))
	require.Equal(t, rep.Count(Fail), got.Failures)
	total := 0.0
	for _, c := range got.Suite.Cases {
		require.Positive(t, c.Time, c.Name)
		total += c.Time
	}
	require.InDelta(t, total, got.Time, 1e-3)
	require.Len(t, got.Suite.Cases, len(rep.Results))
	require.Equal(t, "send_basic", got.Suite.Cases[0].Name)
	require.Contains(t, got.Suite.Cases[0].Failure.Text, "wanted: id=1 SUCCESS RECV len=100 flags=0x1")
}

// plain hides what a device offers besides verbs.
type plain struct{ DUT }

func TestCasesWithNeedsAreSkipped(t *testing.T) {
	s, err := Load("rxe")
	require.NoError(t, err)
	rep, err := s.Run(func() (DUT, error) {
		d, err := NewDevice(qp.ProfileRXE)
		return plain{d}, err
	}, nil)
	require.NoError(t, err)
	require.True(t, rep.OK())
	require.Equal(t, 7, rep.Count(Skip))
}

// TestStaleExpectation: an explanation of a difference that is not there is a failure,
// and so is a completion without a documented cause.
func TestStaleExpectation(t *testing.T) {
	x, err := parseExpectations("x.txt", "case a SQ-COMP-01 for no reason at all\n  states A=RTS/RTS\n")
	require.NoError(t, err)
	s := &Suite{exp: x}
	ref := &Record{States: "A=RTS/RTS"}
	res := s.judge(&Case{Name: "a"}, ref, &outcome{Record: *ref})
	require.Equal(t, Fail, res.Verdict)

	s = &Suite{exp: &expectations{}}
	ref = &Record{Completions: "A.s id=1 WR_FLUSH_ERR SEND len=0 flags=0x0 verr=0"}
	for verr, want := range map[string]Verdict{"1026": Pass, "0": Fail, "77": Fail} {
		got := outcome{Record: Record{Completions: "A.s id=1 WR_FLUSH_ERR SEND len=0 flags=0x0 verr=" + verr}}
		require.Equal(t, want, s.judge(&Case{Name: "a"}, ref, &got).Verdict, verr)
	}
}

func TestOrderAcrossQueuesDoesNotCount(t *testing.T) {
	s := &Suite{exp: &expectations{}}
	ref := &Record{Completions: "A.s x; B.r y; A.s z"}
	require.Equal(t, Pass, s.judge(&Case{}, ref, &outcome{Record: Record{Completions: "B.r y; A.s x; A.s z"}}).Verdict)
	require.Equal(t, Fail, s.judge(&Case{}, ref, &outcome{Record: Record{Completions: "B.r y; A.s z; A.s x"}}).Verdict)
}

func TestBadCases(t *testing.T) {
	for text, want := range map[string]string{
		"connect":                                             `x.txt:1: "connect" outside a case`,
		"case a b":                                            "want \"case NAME\"",
		"case a\ncall x":                                      "want \"call LABEL STEP...\"",
		"case a\ncall \"x connect":                            "not closed",
		"case a\nfly":                                         `no step "fly"`,
		"case a\nconnect now":                                 `"now" means nothing here`,
		"case a\nconnect with=love":                           "with= means nothing here",
		"case a\ncreate C":                                    `no queue pair "C"`,
		"case a\ncreate A\nmodify A UP":                       `no state "UP"`,
		"case a\nset type=XRC":                                `no queue pair type "XRC"`,
		"case a\nset access_b=READ":                           `no access flag "READ"`,
		"case a\ncreate A\npost_send A x SEND":                "bad wr_id",
		"case a\ncreate A\npost_send A 1 FLY":                 `no operation "FLY"`,
		"case a\ncreate A\npost_send A 1 SEND lkey=no":        `no key "no"`,
		"case a\ncreate A\npost_send A 1 SEND at=SRC+9999999": "not a place in the memory",
		"case a\nnote {what}":                                 "{what} means nothing",
		"case a\nnote {u64 SRC":                               "not closed",
		"case a\nnote {u64}":                                  "want 1 arguments",
		"case a\ninject A NOTHING":                            `no packet "NOTHING"`,
		"case a\nset timeout=soon":                            "timeout=soon is not a number",
	} {
		cases, err := Parse("x.txt", text)
		if err == nil {
			d, derr := NewDevice(qp.ProfileIBTA)
			require.NoError(t, derr)
			_, err = runCase(d, cases[0])
		}
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzCase(f *testing.F) {
	names, err := files.ReadDir("cases")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range names {
		b, err := files.ReadFile("cases/" + n.Name())
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range strings.SplitAfter(string(b), "\n\n") {
			f.Add(c)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		cases, err := Parse("fuzz.txt", text)
		if err != nil || len(cases) == 0 {
			return
		}
		d, err := NewDevice(qp.ProfileIBTA)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = runCase(d, cases[0]) // a bad case is an error, never a panic
	})
}
