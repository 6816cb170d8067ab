// Package callsite puts addresses of a running program into words: function, source file
// and line, as far as the program's file says.
package callsite

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Files knows the programs and libraries that it was asked about. It is safe for
// concurrent use.
type Files struct {
	mu   sync.Mutex
	open map[string]*file
}

// maxFiles and maxSize bound what is remembered, and read.
const (
	maxFiles = 64
	maxSize  = 1 << 30
)

// file is what an ELF file says about its code.
type file struct {
	funcs []elf.Symbol // by address
	lines *dwarf.Data  // nil without debug information
}

// Describe takes lines of an address in hexadecimal and a path, the innermost call first,
// and returns "send_all (client.c:42), called from main (client.c:80)". What a file does
// not tell is left out: "client+0x1234". Lines that are none end it.
func (fs *Files) Describe(site string) string {
	var calls []string
	for line := range strings.Lines(site) {
		hex, path, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		addr, err := strconv.ParseUint(hex, 16, 64)
		if !ok || err != nil || !filepath.IsAbs(path) {
			break
		}
		for _, at := range fs.find(path).frames(addr) {
			if at.function == "_start" { // the C runtime's, in front of main
				return strings.Join(calls, between)
			}
			if !strings.HasPrefix(at.function, "ibv_") { // of a header of libibverbs
				calls = append(calls, at.text(path, addr))
			}
		}
	}
	return strings.Join(calls, between)
}

const between = ", called from "

// frame is a function that was being carried out, and where. All of it may be empty.
type frame struct {
	function string
	src      string
	line     int
}

func (at *frame) text(path string, addr uint64) string {
	place := fmt.Sprintf("%s+%#x", filepath.Base(path), addr)
	if at.src != "" {
		place = fmt.Sprintf("%s:%d", filepath.Base(at.src), at.line)
	}
	if at.function == "" {
		return place
	}
	return at.function + " (" + place + ")"
}

func (fs *Files) find(path string) *file {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.open[path]; f != nil {
		return f
	}
	if fs.open == nil || len(fs.open) == maxFiles {
		fs.open = map[string]*file{}
	}
	f := read(path)
	fs.open[path] = f
	return f
}

// read reads an ELF file. The path comes from a program, and so may be anything: what is
// not a regular file is not opened for good, and a parser that gives up has found nothing.
func read(path string) (f *file) {
	f = &file{}
	defer func() {
		if recover() != nil {
			f = &file{}
		}
	}()
	r, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return f
	}
	defer r.Close()
	if st, err := r.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > maxSize {
		return f
	}
	e, err := elf.NewFile(r)
	if err != nil {
		return f
	}
	syms, err := e.Symbols()
	if err != nil {
		syms, _ = e.DynamicSymbols()
	}
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Value != 0 {
			f.funcs = append(f.funcs, s)
		}
	}
	sort.SliceStable(f.funcs, func(i, j int) bool { return f.funcs[i].Value < f.funcs[j].Value })
	f.lines, _ = e.DWARF()
	return f
}

// function is the name of the function that an address is in.
func (f *file) function(addr uint64) string {
	i := sort.Search(len(f.funcs), func(i int) bool { return f.funcs[i].Value > addr }) - 1
	if i < 0 {
		return ""
	}
	// _start has no size in some runtimes.
	if s := &f.funcs[i]; addr < s.Value+s.Size || s.Size == 0 {
		return s.Name
	}
	return ""
}

// frames are the functions that an address is in: those that were inlined, innermost
// first, and the one that has them all. There is always one.
func (f *file) frames(addr uint64) (out []frame) {
	name, _, _ := strings.Cut(f.function(addr), ".") // without what the compiler adds: ".constprop.0"
	whole := []frame{{function: name}}
	if f.lines == nil {
		return whole
	}
	defer func() {
		if recover() != nil {
			out = whole
		}
	}()
	unit, err := f.lines.Reader().SeekPC(addr)
	if err != nil {
		return whole
	}
	r, err := f.lines.LineReader(unit)
	if err != nil || r == nil {
		return whole
	}
	at := frame{}
	at.src, at.line = lineOf(r, addr)
	calls := f.inlined(unit, addr)
	for i := len(calls) - 1; i >= 0; i-- {
		at.function = calls[i].function
		out = append(out, at)
		at = frame{line: calls[i].line}
		if n := calls[i].file; n >= 0 && n < len(r.Files()) && r.Files()[n] != nil {
			at.src = r.Files()[n].Name
		}
	}
	at.function = name
	return append(out, at)
}

// lineOf finds the line of an address. (LineReader.SeekPC wants the sequences of a unit in
// the order of their addresses; with main in a section of its own they are not.)
func lineOf(r *dwarf.LineReader, addr uint64) (src string, line int) {
	last := dwarf.LineEntry{EndSequence: true}
	var e dwarf.LineEntry
	for r.Next(&e) == nil {
		if !last.EndSequence && last.Address <= addr && addr < e.Address && last.File != nil {
			return last.File.Name, last.Line
		}
		last = e
	}
	return "", 0
}

// call is where a function that was inlined is called.
type call struct {
	function   string
	file, line int
}

// inlined returns the calls of inlined functions that an address is in, the outermost
// first.
func (f *file) inlined(unit *dwarf.Entry, addr uint64) (calls []call) {
	r := f.lines.Reader()
	r.Seek(unit.Offset)
	if _, err := r.Next(); err != nil {
		return nil
	}
	for depth := 1; depth > 0; {
		e, err := r.Next()
		switch {
		case err != nil || e == nil:
			return calls
		case e.Tag == 0:
			depth--
			continue
		case e.Tag == dwarf.TagSubprogram || e.Tag == dwarf.TagInlinedSubroutine || e.Tag == dwarf.TagLexDwarfBlock:
			if !f.holds(e, addr) {
				r.SkipChildren()
				continue
			}
		}
		if e.Tag == dwarf.TagInlinedSubroutine {
			file, _ := e.Val(dwarf.AttrCallFile).(int64)
			line, _ := e.Val(dwarf.AttrCallLine).(int64)
			calls = append(calls, call{f.nameOf(e), int(file), int(line)})
		}
		if e.Children {
			depth++
		}
	}
	return calls
}

// nameOf is the name of a function that was inlined.
func (f *file) nameOf(e *dwarf.Entry) string {
	for range 3 { // the instance refers to the function, which may refer to its declaration
		if name, ok := e.Val(dwarf.AttrName).(string); ok {
			return name
		}
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			if off, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset); !ok {
				return ""
			}
		}
		r := f.lines.Reader()
		r.Seek(off)
		var err error
		if e, err = r.Next(); err != nil || e == nil {
			return ""
		}
	}
	return ""
}

// holds reports whether an address is in the code of an entry.
func (f *file) holds(e *dwarf.Entry, addr uint64) bool {
	ranges, err := f.lines.Ranges(e)
	if err != nil {
		return false
	}
	for _, p := range ranges {
		if p[0] <= addr && addr < p[1] {
			return true
		}
	}
	return false
}
