//go:build linux

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// elfFile writes an ELF file of a class that asks for a dynamic linker, or for none.
func elfFile(t *testing.T, class elf.Class, linker string) string {
	t.Helper()
	var b bytes.Buffer
	put := func(v any) { require.NoError(t, binary.Write(&b, binary.LittleEndian, v)) }
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	if class == elf.ELFCLASS32 {
		put(elf.Header32{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_386), Version: 1, Ehsize: 52})
	} else {
		h := elf.Header64{Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phoff: 64, Phentsize: 56}
		if linker != "" {
			h.Phnum = 1
		}
		put(h)
		if linker != "" {
			put(elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(linker) + 1), Memsz: uint64(len(linker) + 1)})
			put(append([]byte(linker), 0))
		}
	}
	f := filepath.Join(t.TempDir(), "prog")
	require.NoError(t, os.WriteFile(f, b.Bytes(), 0o755))
	return f
}

func TestBeyondPreload(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	for _, c := range []struct {
		prog, why string
		answered  bool
	}{
		{elfFile(t, elf.ELFCLASS64, "/lib64/ld-linux-x86-64.so.2"), "", false},
		{elfFile(t, elf.ELFCLASS64, "/lib/ld-musl-x86_64.so.1"), "is linked with musl", true},
		{elfFile(t, elf.ELFCLASS64, ""), "is statically linked", true},
		{elfFile(t, elf.ELFCLASS32, ""), "is a 32-bit program", false},
		{script, "", false},
	} {
		why, answered := beyondPreload(c.prog)
		require.Equal(t, c.why, why)
		require.Equal(t, c.answered, answered, why)
	}
}
