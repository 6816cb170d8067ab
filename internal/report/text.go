package report

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Width is the number of columns that the tables fit in, as long as names are not
// absurdly long.
const Width = 100

// TextOptions are the choices for the terminal form.
type TextOptions struct {
	// Color marks results green and red with ANSI sequences.
	Color bool
	// AllChecks lists the expectations that hold, too; else only those that do not.
	AllChecks bool
}

// IsTerminal reports whether w is a terminal, where colour is welcome.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// WriteText prints the run as tables for people. The error is that of w.
func WriteText(w io.Writer, r *Run, o TextOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s  %s  seed %d  %s", r.Name, r.Mode, r.Seed, formatDuration(r.Elapsed))
	if r.Digest != "" {
		b.WriteString("  digest " + r.Digest)
	}
	b.WriteByte('\n')
	for i := range r.Nodes {
		writeNode(&b, r, &r.Nodes[i])
	}
	writeFlows(&b, r)
	writeChecks(&b, r, o)
	_, err := io.WriteString(w, b.String())
	return err
}

// column is the head of a table column.
type column struct {
	title string
	right bool
	wrap  int // 0: never
}

// render lays out rows without borders, two spaces between columns.
func render(b *strings.Builder, columns []column, rows [][]string) {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	head := make(table.Row, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		head[i] = c.title
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMax: c.wrap}
		if c.right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.AppendHeader(head)
	for _, row := range rows {
		cells := make(table.Row, len(row))
		for i, s := range row {
			cells[i] = s
		}
		t.AppendRow(cells)
	}
	t.SetColumnConfigs(configs)
	b.WriteString(t.Render())
	b.WriteByte('\n')
}

var completionColumns = []column{
	{title: "operation"}, {title: "status"}, {title: "count", right: true}, {title: "bytes", right: true}, {title: "rate", right: true},
	{title: "p50", right: true}, {title: "p90", right: true}, {title: "p99", right: true}, {title: "max", right: true},
}

func writeNode(b *strings.Builder, r *Run, n *NodeStats) {
	fmt.Fprintf(b, "\nnode %s  %s  profile %s\n", n.Name, n.Address, n.Profile)
	var rows [][]string
	for _, c := range n.completions() {
		row := []string{c.operation(), c.Status.String(), formatCount(c.Count), formatBytes(c.Bytes), formatRate(rate(c.Bytes, r.Elapsed))}
		rows = append(rows, append(row, percentiles(c.Latency, 50, 90, 99)...))
	}
	if len(rows) > 0 {
		render(b, completionColumns, rows)
	} else {
		b.WriteString("no completions\n")
	}
	fmt.Fprintf(b, "packets        sent %d (%s), received %d (%s)\n", n.PacketsSent, formatBytes(n.BytesSent), n.PacketsReceived, formatBytes(n.BytesReceived))
	x := n.Retransmissions
	fmt.Fprintf(b, "retransmitted  %s; timeouts %d, sequence NAKs %d, RNR NAKs %d", plural(x.Packets, "packet"), x.Timeouts, x.SequenceNAKs, x.RNRNAKs)
	if x.RNRTime > 0 {
		fmt.Fprintf(b, " (waited %v)", x.RNRTime)
	}
	b.WriteByte('\n')
	writeCounts(b, n)
}

// writeCounts prints drops and events, which can be many or none.
func writeCounts(b *strings.Builder, n *NodeStats) {
	drops := []string{"none"}
	for i, d := range n.drops() {
		if i == 0 {
			drops = nil
		}
		drops = append(drops, d.Reason+" "+strconv.FormatUint(d.Packets, 10))
	}
	b.WriteString(wrapItems("dropped        ", drops, Width))
	var events []string
	for _, e := range n.events() {
		events = append(events, e.Type.String()+" "+strconv.FormatUint(e.Count, 10))
	}
	if len(events) > 0 {
		b.WriteString(wrapItems("events         ", events, Width))
	}
	for _, m := range n.Misuse {
		b.WriteString(wrapWords("misuse         ", m.Code+": "+m.Object+": "+m.What+": "+m.Detail, Width))
	}
}

func plural(n uint64, noun string) string {
	s := strconv.FormatUint(n, 10) + " " + noun
	if n != 1 {
		s += "s"
	}
	return s
}

// percentiles prints those of ps and the maximum; dashes if nothing was measured.
func percentiles(l *Latency, ps ...float64) []string {
	row := make([]string, 0, len(ps)+1)
	for _, p := range ps {
		if l.Count() == 0 {
			row = append(row, "-")
			continue
		}
		row = append(row, formatNanos(l.Percentile(p)))
	}
	if l.Count() == 0 {
		return append(row, "-")
	}
	return append(row, formatNanos(l.Max()))
}

var flowColumns = []column{
	{title: "flow"}, {title: "path"}, {title: "op"}, {title: "posted", right: true}, {title: "ok", right: true}, {title: "rate", right: true},
	{title: "p50", right: true}, {title: "p99", right: true}, {title: "max", right: true}, {title: "resent", right: true}, {title: "data"},
}

func writeFlows(b *strings.Builder, r *Run) {
	if len(r.Flows) == 0 {
		return
	}
	b.WriteString("\nflows\n")
	rows := make([][]string, len(r.Flows))
	for i := range r.Flows {
		f := &r.Flows[i]
		rows[i] = []string{f.Name, f.From + ">" + f.To, strings.ToLower(f.Transport.String()) + " " + f.Ops,
			formatCount(f.Posted), formatCount(f.Succeeded), formatRate(rate(f.Bytes, f.Active))}
		rows[i] = append(rows[i], percentiles(f.Latency, 50, 99)...)
		rows[i] = append(rows[i], formatCount(f.Retransmissions), f.data())
	}
	const words = 3 // columns that may be cut short
	room := Width - 2*(len(flowColumns)-1)
	for k := words; k < len(flowColumns); k++ {
		room -= widest(rows, k, flowColumns[k].title)
	}
	widths := fit(rows, words, room)
	for _, row := range rows {
		for k, w := range widths {
			row[k] = truncate(row[k], w)
		}
	}
	render(b, flowColumns, rows)
}

// widest returns the width that column k needs.
func widest(rows [][]string, k int, title string) int {
	w := utf8.RuneCountInString(title)
	for _, row := range rows {
		w = max(w, utf8.RuneCountInString(row[k]))
	}
	return w
}

// fit returns widths for the first n columns. Where what they need adds up to more
// than room, the widest gives first.
func fit(rows [][]string, n, room int) []int {
	widths := make([]int, n)
	sum := 0
	for k := range widths {
		widths[k] = widest(rows, k, "")
		sum += widths[k]
	}
	for ; sum > room; sum-- {
		most := 0
		for k := range widths {
			if widths[k] > widths[most] {
				most = k
			}
		}
		widths[most]--
	}
	return widths
}

// data says whether what arrived was right.
func (f *FlowStats) data() string {
	switch {
	case f.DataErrors > 0:
		return "BAD"
	case f.DataVerified > 0:
		return "ok"
	}
	return "-"
}

var checkColumns = []column{
	{title: ""}, {title: "flow", wrap: 16}, {title: "expectation", wrap: 30}, {title: "expected", wrap: 20}, {title: "seen", wrap: 20},
}

// ANSI sequences of the two results.
const (
	green = "\x1b[32m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

func writeChecks(b *strings.Builder, r *Run, o TextOptions) {
	if len(r.Expectations) == 0 {
		return
	}
	failed := r.failed()
	fmt.Fprintf(b, "\nexpectations: %d ok", len(r.Expectations)-failed)
	if failed > 0 {
		b.WriteString(", " + paint(strconv.Itoa(failed)+" FAILED", red, o.Color))
	}
	b.WriteByte('\n')
	var rows [][]string
	for _, c := range r.Expectations {
		if c.OK && !o.AllChecks {
			continue
		}
		result := paint("ok", green, o.Color)
		if !c.OK {
			result = paint("FAIL", red, o.Color)
		}
		flow := c.Flow
		if flow == "" {
			flow = "(run)"
		}
		rows = append(rows, []string{result, flow, c.What, c.Want, c.Got})
	}
	if len(rows) > 0 {
		render(b, checkColumns, rows)
	}
}

func paint(s, color string, on bool) string {
	if !on {
		return s
	}
	return color + s + plain
}
