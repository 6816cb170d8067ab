package simreport

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/wire"
)

func dropName(reason int) string { return wire.DropReason(reason).String() }

// plainStyle has columns and no lines.
func plainStyle(t table.Writer, left int) {
	t.SetStyle(table.StyleLight)
	s := t.Style()
	s.Options = table.OptionsNoBordersAndSeparators
	s.Format.Header = text.FormatDefault
	s.Box.PaddingLeft, s.Box.PaddingRight = "", "  "
	var cfg []table.ColumnConfig
	for i := left + 1; i <= 12; i++ {
		cfg = append(cfg, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(cfg)
}

func writeTable(w io.Writer, t table.Writer) {
	for _, line := range strings.Split(t.Render(), "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// mostPorts is how many ports the summary lists.
const mostPorts = 8

// WriteText prints the summary of one seed.
func WriteText(w io.Writer, r *Result) {
	fmt.Fprintf(w, "sim %s  seed %d  %d nodes  %s of virtual time\n", r.Name, r.Seed, r.Nodes, report.Duration(r.Elapsed))
	if r.Wall > 0 {
		fmt.Fprintf(w, "%s events in %s, %s events/s\n", report.Count(r.Events), report.Duration(r.Wall), report.Count(uint64(float64(r.Events)/r.Wall.Seconds())))
	}
	fmt.Fprintf(w, "digest %s\n\ntraffic\n", r.Digest)
	t := table.NewWriter()
	plainStyle(t, 1)
	t.AppendHeader(table.Row{"name", "flows", "ok", "of", "payload", "rate", "p50", "p90", "p99", "p99.9", "max", "resent"})
	for i := range r.Traffic {
		x := &r.Traffic[i]
		row := table.Row{x.Name, x.Flows, report.Count(x.Succeeded), report.Count(x.Posted), report.Bytes(x.Bytes), rateOrNone(x.RateBPS)}
		if s := x.Latency; s != nil {
			for _, v := range []int64{s.P50, s.P90, s.P99, s.P999, s.Max} {
				row = append(row, report.Duration(time.Duration(v)))
			}
		} else {
			row = append(row, "-", "-", "-", "-", "-")
		}
		t.AppendRow(append(row, report.Count(x.Resent)))
	}
	writeTable(w, t)
	writeFinish(w, r)
	writePorts(w, r)
	writeLosses(w, r)
}

// rateOrNone prints a rate. Without a bandwidth and without a peer that reports what it
// got, all that was sent was gone at once: there is none.
func rateOrNone(bps int64) string {
	if bps == 0 {
		return "-"
	}
	return report.Rate(bps)
}

// writeFinish prints how long flows took, where an entry has several.
func writeFinish(w io.Writer, r *Result) {
	t := table.NewWriter()
	plainStyle(t, 1)
	t.AppendHeader(table.Row{"completion of flows", "first", "p50", "p90", "p99", "last"})
	for i := range r.Traffic {
		if x := &r.Traffic[i]; x.Flows > 1 && x.Finish != nil {
			row := table.Row{x.Name}
			for _, v := range []int64{x.Finish.Min, x.Finish.P50, x.Finish.P90, x.Finish.P99, x.Finish.Max} {
				row = append(row, report.Duration(time.Duration(v)))
			}
			t.AppendRow(row)
		}
	}
	if t.Length() > 0 {
		fmt.Fprintln(w)
		writeTable(w, t)
	}
}

func writePorts(w io.Writer, r *Result) {
	if len(r.Ports) == 0 {
		return
	}
	t := table.NewWriter()
	plainStyle(t, 1)
	t.AppendHeader(table.Row{"port", "use", "on the wire", "packets", "longest queue", "dropped", "marked"})
	for i := range min(len(r.Ports), mostPorts) {
		p := &r.Ports[i]
		use := "-"
		if p.Use > 0 {
			use = fmt.Sprintf("%.1f%%", p.Use*100)
		}
		t.AppendRow(table.Row{p.Name, use, report.Bytes(p.Bytes), report.Count(p.Packets), report.Bytes(p.MaxQueue), report.Count(p.Dropped), report.Count(p.Marked)})
	}
	fmt.Fprintln(w)
	writeTable(w, t)
	if more := len(r.Ports) - mostPorts; more > 0 {
		fmt.Fprintf(w, "and %d ports that carried less\n", more)
	}
}

func writeLosses(w io.Writer, r *Result) {
	l := &r.Losses
	fmt.Fprintf(w, "\npackets        %s sent, %s of them again; sequence NAKs %s\n", report.Count(l.Packets), report.Count(l.Resent), report.Count(l.SequenceNAKs))
	fmt.Fprintf(w, "time lost      %s in %s ACK timeouts, %s after %s RNR NAKs (over all queue pairs)\n", report.Duration(l.TimeoutTime), report.Count(l.Timeouts), report.Duration(l.RNRTime), report.Count(l.RNRNAKs))
	if l.CNPs > 0 || l.Marked > 0 {
		fmt.Fprintf(w, "congestion     %s data packets came marked; %s CNPs sent, %s heeded\n", report.Count(l.Marked), report.Count(l.CNPs), report.Count(l.CNPsHandled))
	}
	if r.Restarts > 0 {
		fmt.Fprintf(w, "restarts       %d flows began anew\n", r.Restarts)
	}
	var drops []string
	for reason := range l.Dropped {
		drops = append(drops, reason)
	}
	slices.Sort(drops)
	for i, reason := range drops {
		drops[i] = fmt.Sprintf("%s %s", reason, report.Count(l.Dropped[reason]))
	}
	if len(drops) == 0 {
		drops = []string{"none"}
	}
	fmt.Fprintf(w, "dropped        %s\n", strings.Join(drops, ", "))
}

// WriteJSON prints the results as one JSON array.
func WriteJSON(w io.Writer, rs []*Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(rs)
}

// WriteCSV prints one table: "traffic", "flows", "ports" or "series". Durations are in
// seconds, rates in bits per second, lengths in bytes.
func WriteCSV(w io.Writer, kind string, rs []*Result) error {
	c := csv.NewWriter(w)
	u := func(v uint64) string { return strconv.FormatUint(v, 10) }
	sec := func(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'g', -1, 64) }
	header := map[string][]string{
		"traffic": {"seed", "name", "pattern", "flows", "posted", "succeeded", "bytes", "rate", "resent", "latency_p50", "latency_p99", "latency_max", "finish_first", "finish_last"},
		"flows":   {"seed", "flow", "from", "to", "posted", "succeeded", "bytes", "resent", "elapsed"},
		"ports":   {"seed", "port", "use", "bytes", "packets", "dropped", "marked", "longest_queue"},
		"series":  {"seed", "time", "name", "value"},
	}[kind]
	_ = c.Write(header) // kept until Flush; Error tells
	for _, r := range rs {
		seed := u(r.Seed)
		switch kind {
		case "traffic":
			for i := range r.Traffic {
				t := &r.Traffic[i]
				l, f := spreadOrZero(t.Latency), spreadOrZero(t.Finish)
				_ = c.Write([]string{seed, t.Name, t.Pattern, strconv.Itoa(t.Flows), u(t.Posted), u(t.Succeeded), u(t.Bytes), u(uint64(t.RateBPS)), u(t.Resent), sec(l.P50), sec(l.P99), sec(l.Max), sec(f.Min), sec(f.Max)})
			}
		case "flows":
			for i := range r.Flows {
				f := &r.Flows[i]
				_ = c.Write([]string{seed, f.Name, f.From, f.To, u(f.Posted), u(f.Succeeded), u(f.Bytes), u(f.Resent), sec(int64(f.Elapsed))})
			}
		case "ports":
			for i := range r.Ports {
				p := &r.Ports[i]
				_ = c.Write([]string{seed, p.Name, strconv.FormatFloat(p.Use, 'g', 6, 64), u(p.Bytes), u(p.Packets), u(p.Dropped), u(p.Marked), u(p.MaxQueue)})
			}
		case "series":
			for k, q := range r.Series.Queue {
				at := sec(r.Series.StepNS * int64(k+1))
				for i := range r.Traffic {
					_ = c.Write([]string{seed, at, "rate " + r.Traffic[i].Name, u(r.Series.RateBPS[r.Traffic[i].Name][k])})
				}
				_ = c.Write([]string{seed, at, "longest queue", u(q)})
			}
		}
	}
	c.Flush()
	return c.Error()
}

func spreadOrZero(s *Spread) Spread {
	if s == nil {
		return Spread{}
	}
	return *s
}

// CSVKinds are the tables of WriteCSV.
var CSVKinds = []string{"traffic", "flows", "ports", "series"}
