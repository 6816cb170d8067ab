// Command seccomp_go is a program without C that opens the device itself: what it does
// cannot be seen by a preloaded library.
package main

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

const device = "/dev/infiniband/uverbs0"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "seccomp_go:", err)
		os.Exit(1)
	}
}

func run() error {
	name, err := onlyDevice()
	if err != nil {
		return err
	}
	files, err := tree("/sys/class/infiniband/" + name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return fmt.Errorf("%s is no device: %v, %v", device, info, err)
	}
	async, err := getContext(f)
	if err != nil {
		return err
	}
	defer async.Close()
	if err := storm(f); err != nil {
		return err
	}
	fmt.Printf("%s: %d files, port active\n", name, files)
	return nil
}

// onlyDevice finds the device by what sysfs says about uverbs0.
func onlyDevice() (string, error) {
	list, err := os.ReadDir("/sys/class/infiniband_verbs")
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if e.Name() == "uverbs0" {
			b, err := os.ReadFile("/sys/class/infiniband_verbs/uverbs0/ibdev")
			return strings.TrimSpace(string(b)), err
		}
	}
	return "", fmt.Errorf("no uverbs0 among %v", list)
}

// tree reads every file below a directory.
func tree(root string) (files int, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && len(b) == 0 {
			err = fmt.Errorf("%s is empty", path)
		}
		files++
		return err
	})
	return files, err
}

// command is one write() to the device: number, words, then body, which begins with the
// address of the answer.
func command(f *os.File, number uint32, body []uint64, answer []byte) error {
	b := make([]byte, 8+8*len(body))
	ne := binary.NativeEndian
	ne.PutUint32(b, number)
	ne.PutUint16(b[4:], uint16(len(b)/4))
	ne.PutUint16(b[6:], uint16(len(answer)/4))
	for i, w := range body {
		ne.PutUint64(b[8+8*i:], w)
	}
	ne.PutUint64(b[8:], uint64(uintptr(unsafe.Pointer(&answer[0]))))
	n, err := f.Write(b)
	runtime.KeepAlive(answer)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d of %d bytes written", n, len(b))
	}
	return err
}

func getContext(f *os.File) (*os.File, error) {
	const getContext = 0
	answer := make([]byte, 8)
	if err := command(f, getContext, []uint64{0}, answer); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(binary.NativeEndian.Uint32(answer)), "async"), nil
}

// storm asks for the port from many goroutines, while others make the scheduler interrupt
// them all.
func storm(f *os.File) error {
	const goroutines, times = 16, 50
	var stop atomic.Bool
	var spin, wg sync.WaitGroup
	for range 2 {
		spin.Add(1)
		go func() {
			defer spin.Done()
			for !stop.Load() {
			}
		}()
	}
	errs := make(chan error, goroutines)
	for range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range times {
				if err := queryPort(f); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	wg.Wait()
	stop.Store(true)
	spin.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	return nil
}

func queryPort(f *os.File) error {
	const queryPort, active = 2, 4
	answer := make([]byte, 40)
	if err := command(f, queryPort, []uint64{0, 1}, answer); err != nil {
		return err
	}
	if state := answer[26]; state != active {
		return fmt.Errorf("port state %d in %x", state, answer)
	}
	return nil
}
