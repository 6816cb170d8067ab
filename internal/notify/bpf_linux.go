//go:build amd64 || arm64

package notify

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, whose 64-bit arguments have their low word first on
// every architecture that we serve.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

// assembler builds a classic BPF program whose jumps go forward to labels.
type assembler struct {
	code   []unix.SockFilter
	jumps  map[int][2]string // per instruction, the labels for true and false; "" is next
	labels map[string]int
}

func newAssembler() *assembler {
	return &assembler{jumps: map[int][2]string{}, labels: map[string]int{}}
}

func (a *assembler) label(name string) { a.labels[name] = len(a.code) }

// load loads the word at an offset of struct seccomp_data.
func (a *assembler) load(off uint32) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off})
}

// arg loads the low word of an argument.
func (a *assembler) arg(i uint32) { a.load(dataArgs + 8*i) }

// jump compares what was loaded with k. op is BPF_JEQ, BPF_JGE or BPF_JSET.
func (a *assembler) jump(op uint16, k uint32, yes, no string) {
	a.jumps[len(a.code)] = [2]string{yes, no}
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k})
}

func (a *assembler) ret(k uint32) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k})
}

// assemble resolves the labels.
func (a *assembler) assemble() ([]unix.SockFilter, error) {
	for i, names := range a.jumps {
		var dist [2]uint8
		for k, name := range names {
			if name == "" {
				continue
			}
			at, ok := a.labels[name]
			d := at - i - 1
			if !ok || d < 0 || d > 255 {
				return nil, fmt.Errorf("notify: label %q is out of reach of instruction %d", name, i)
			}
			dist[k] = uint8(d)
		}
		a.code[i].Jt, a.code[i].Jf = dist[0], dist[1]
	}
	return a.code, nil
}
