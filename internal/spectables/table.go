package spectables

import (
	"fmt"
	"strconv"
	"strings"

	yaml "github.com/goccy/go-yaml"
)

// Table is one table of spec/tables.
type Table struct {
	Schema  int              `yaml:"schema"`
	Name    string           `yaml:"table"`
	Title   string           `yaml:"title"`
	Source  string           `yaml:"source"`
	Key     []string         `yaml:"key"`
	Columns []Column         `yaml:"columns"`
	Rows    []map[string]any `yaml:"rows"`
}

// Column describes a column.
type Column struct {
	Name string `yaml:"name"`
	// Type is string, int, hex (an int written in base 16), bool or list (of strings).
	Type string `yaml:"type"`
	Text string `yaml:"text"`
	// Derived columns come from the code; the others are written by hand.
	Derived bool `yaml:"derived"`
}

// schemaVersion is the only version there is.
const schemaVersion = 1

// Row is the derived part of a row.
type Row map[string]any

// source is how a table follows from the code.
type source struct {
	name    string
	title   string
	source  string
	key     []string
	columns []Column
	rows    func() []Row
}

// decode reads a table and checks its form.
func decode(b []byte) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalWithOptions(b, t, yaml.Strict()); err != nil {
		return nil, err
	}
	if t.Schema != schemaVersion {
		return nil, fmt.Errorf("schema is %d, want %d", t.Schema, schemaVersion)
	}
	seen := map[string]bool{}
	for i, r := range t.Rows {
		for _, c := range t.Columns {
			if _, ok := r[c.Name]; !ok {
				return nil, fmt.Errorf("row %d lacks %s", i+1, c.Name)
			}
		}
		if len(r) != len(t.Columns) {
			return nil, fmt.Errorf("row %d has columns that the table has not", i+1)
		}
		k := keyOf(t.Key, r)
		if seen[k] {
			return nil, fmt.Errorf("row %d: %s is there already", i+1, k)
		}
		seen[k] = true
	}
	return t, nil
}

// keyOf names a row.
func keyOf(key []string, r map[string]any) string {
	parts := make([]string, len(key))
	for i, k := range key {
		parts[i] = text(r[k])
	}
	return strings.Join(parts, " ")
}

// text is a value as it is compared.
func text(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case []string:
		return "[" + strings.Join(x, " ") + "]"
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = fmt.Sprint(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v)
}

// build makes the table that should be there: the derived columns from the code, the
// others from the table as it is.
func (s *source) build(have *Table) *Table {
	t := &Table{Schema: schemaVersion, Name: s.name, Title: s.title, Source: s.source, Key: s.key, Columns: s.columns}
	old := map[string]map[string]any{}
	if have != nil {
		for _, r := range have.Rows {
			old[keyOf(s.key, r)] = r
		}
	}
	for _, r := range s.rows() {
		row := map[string]any{}
		for _, c := range s.columns {
			if c.Derived {
				row[c.Name] = r[c.Name]
			} else if o, ok := old[keyOf(s.key, r)][c.Name]; ok {
				row[c.Name] = o
			} else if c.Type == "list" {
				row[c.Name] = []string{}
			} else {
				row[c.Name] = unwritten
			}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// unwritten stands in a cell that somebody has to write.
const unwritten = "?"

// encode prints a table, one row a line.
func (t *Table) encode() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Checked against the code by internal/spectables; README.md describes the form.\n")
	fmt.Fprintf(&b, "schema: %d\ntable: %s\ntitle: %s\nsource: %s\nkey: [%s]\ncolumns:\n", t.Schema, t.Name, strconv.Quote(t.Title), strconv.Quote(t.Source), strings.Join(t.Key, ", "))
	for _, c := range t.Columns {
		fmt.Fprintf(&b, "  - {name: %s, type: %s, derived: %v, text: %s}\n", c.Name, c.Type, c.Derived, strconv.Quote(c.Text))
	}
	b.WriteString("rows:\n")
	for _, r := range t.Rows {
		b.WriteString("  - {")
		for i, c := range t.Columns {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(c.Name + ": " + value(c.Type, r[c.Name]))
		}
		b.WriteString("}\n")
	}
	return []byte(b.String())
}

// value prints a cell.
func value(typ string, v any) string {
	switch typ {
	case "hex":
		if n, err := strconv.ParseUint(text(v), 10, 64); err == nil {
			return fmt.Sprintf("0x%02x", n)
		}
	case "list":
		parts := strings.Fields(strings.Trim(text(v), "[]"))
		for i, p := range parts {
			parts[i] = strconv.Quote(p)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case "string":
		return strconv.Quote(text(v))
	}
	return text(v)
}
