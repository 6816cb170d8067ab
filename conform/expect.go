package conform

import (
	"fmt"
	"slices"
	"strings"
)

// expectations say where a profile is to differ from the reference records.
type expectations struct {
	general []general
	cases   map[string][]*difference
	order   []string
}

// general is a difference that every case may show.
type general struct {
	name, req, why string
	apply          func(e *expectation, cell Cell, c *completion)
}

// difference is one entry about one case: the cells it covers and the reason.
type difference struct {
	req, why string
	line     int
	cells    map[Cell]string
	done     []Cell // cells in the order of the file
}

// expectation is what one case is expected to give, with the reasons for each cell that
// is not the reference's.
type expectation struct {
	cells map[Cell]string
	why   map[Cell][]Reason
	sent  map[string]wrInfo
	ud    bool
	open  map[Cell]Reason // cells that may hold anything
}

// Reason explains a difference: the rule that decides it and a sentence.
type Reason struct {
	Rule string `json:"rule"` // requirement, or "kernel" for a quirk of the reference
	Why  string `json:"why"`
}

// generals are the differences that a file may declare with "always".
var generals = map[string]func(e *expectation, cell Cell, c *completion){
	// The GRH flag is set on datagrams only.
	"grh_ud_only": func(e *expectation, cell Cell, c *completion) {
		if isReceive(c) && !e.ud {
			c.Flags &^= 1
		}
	},
	// Successful sends have no WITH_IMM flag and no value.
	"no_imm_on_send": func(_ *expectation, _ Cell, c *completion) {
		if c.Status == "SUCCESS" && !isReceive(c) {
			c.Flags &^= 2
			c.drop("imm=")
		}
	},
	// Receives of connected queue pairs name their peer.
	"src_qp_of_peer": func(e *expectation, cell Cell, c *completion) {
		if isReceive(c) && !e.ud {
			c.drop("src_qp=")
			peer := "A"
			if strings.HasPrefix(string(cell), "A") {
				peer = "B"
			}
			c.Rest = append(c.Rest, "src_qp="+peer)
		}
	},
	// Failed completions carry the operation; of a send its length too.
	"errors_filled_in": func(e *expectation, cell Cell, c *completion) {
		if c.Status == "SUCCESS" {
			return
		}
		if strings.HasSuffix(string(cell), ".r") {
			c.Op = "RECV"
			return
		}
		if w, ok := e.sent[string(cell)+" "+c.ID]; ok {
			c.Op, c.Len = w.op, w.length
		}
	},
}

func isReceive(c *completion) bool {
	return c.Status == "SUCCESS" && (c.Op == "RECV" || c.Op == "RECV_RDMA_WITH_IMM")
}

// parseExpectations reads a file of expectations:
//
//	always NAME RULE sentence
//
//	case NAME RULE sentence
//	  CELL value...          "-" for empty; a line that starts with ";" goes on
//	  CELL reference         what was said before is taken back
//	  CELL any               nobody knows: a race in real time
func parseExpectations(file, text string) (*expectations, error) {
	x := &expectations{cases: map[string][]*difference{}}
	return x, x.add(file, text)
}

// add reads one more file. What it says of a cell replaces what was said before.
func (x *expectations) add(file, text string) error {
	var cur *difference
	var cell Cell
	for i, line := range strings.Split(text, "\n") {
		bad := func(format string, v ...any) error {
			return fmt.Errorf("%s:%d: %s", file, i+1, fmt.Sprintf(format, v...))
		}
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		if strings.HasPrefix(trimmed, ";") {
			if cur == nil || cell == "" {
				return bad("nothing to go on with")
			}
			cur.cells[cell] += trimmed
			continue
		}
		if line != trimmed && strings.HasPrefix(line, " ") {
			name, value, _ := strings.Cut(trimmed, " ")
			cell = Cell(name)
			if cur == nil || !slices.Contains(cellOrder, cell) {
				return bad("no cell %q", name)
			}
			if _, ok := cur.cells[cell]; ok {
				return bad("%s is there already", cell)
			}
			if value = strings.TrimSpace(value); value == "-" {
				value = ""
			}
			cur.cells[cell] = value
			cur.done = append(cur.done, cell)
			continue
		}
		f := head(trimmed)
		if len(f) < 4 || len(f[3]) < 10 {
			return bad("want \"always|case NAME RULE sentence\"")
		}
		switch f[0] {
		case "always":
			apply, ok := generals[f[1]]
			if !ok {
				return bad("no general difference %q", f[1])
			}
			x.general = append(x.general, general{f[1], f[2], f[3], apply})
		case "case":
			if x.cases[f[1]] == nil {
				x.order = append(x.order, f[1])
			}
			cur = &difference{req: f[2], why: f[3], line: i + 1, cells: map[Cell]string{}}
			x.cases[f[1]] = append(x.cases[f[1]], cur)
			cell = ""
		default:
			return bad("want always or case, found %q", f[0])
		}
	}
	return nil
}

// expect builds what a case is to give: the reference's record, changed by the general
// differences, then by the case's own. Values of the case's own are complete.
func (x *expectations) expect(c *Case, ref *Record, sent map[string]wrInfo) *expectation {
	e := &expectation{cells: ref.Cells(), why: map[Cell][]Reason{}, sent: sent, ud: c.isUD(), open: map[Cell]Reason{}}
	for _, g := range x.general {
		for _, q := range queueNames {
			cell := Cell(q)
			was := e.cells[cell]
			e.cells[cell] = mapCompletions(was, func(w *completion) { g.apply(e, cell, w) })
			if e.cells[cell] != was {
				e.why[cell] = append(e.why[cell], Reason{g.req, g.why})
			}
		}
	}
	for _, d := range x.cases[c.Name] {
		for _, cell := range d.done {
			if d.cells[cell] == "any" {
				e.open[cell] = Reason{d.req, d.why}
				continue
			}
			if d.cells[cell] == "reference" {
				e.cells[cell] = ref.Cells()[cell]
				delete(e.why, cell)
				continue
			}
			e.cells[cell] = strings.ReplaceAll(d.cells[cell], ";", "; ")
			e.cells[cell] = strings.ReplaceAll(e.cells[cell], ";  ", "; ")
			e.why[cell] = []Reason{{d.req, d.why}}
		}
	}
	return e
}

// isUD reports whether the case is about datagrams only.
func (c *Case) isUD() bool {
	ud := false
	for _, s := range c.Steps {
		if s.Verb != "set" {
			continue
		}
		for _, a := range s.Args {
			if a.Key == "type" {
				ud = a.Val == "UD"
			}
		}
	}
	return ud
}

// head splits the first line of an entry: what it is, a name, a rule, and a sentence.
func head(line string) []string {
	words := strings.Fields(line)
	if len(words) < 4 {
		return words
	}
	return []string{words[0], words[1], words[2], strings.Join(words[3:], " ")}
}
