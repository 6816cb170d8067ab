//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// In the virtual machine the same perftest runs on rxe0 and on rvt0, in turns: both ends in
// the machine, so that nothing of the wire to the host counts. Ratios are those of a round.

func atRoCE(name, program string, limit float64) measure {
	return measure{name: name + " latency 64 B", perf: program + " -n 2000", column: typical, unit: "us", lower: true, limit: limit}
}

func overRoCE(name, program, size string, messages int) measure {
	return measure{name: name, perf: fmt.Sprintf("%s -s %s -n %d", program, size, messages), column: average, unit: "MB/s", limit: 3}
}

var softRoCEMeasures = []measure{
	atRoCE("send", "ib_send_lat -s 64", 1),
	atRoCE("write", "ib_write_lat -s 64", 1),
	atRoCE("read", "ib_read_lat -s 64", 1),
	atRoCE("atomic", "ib_atomic_lat", 1),
	overRoCE("send 64 KiB", "ib_send_bw", "65536", 2000),
	overRoCE("write 64 KiB", "ib_write_bw", "65536", 2000),
	overRoCE("read 64 KiB", "ib_read_bw", "65536", 2000),
	overRoCE("send 1 MiB", "ib_send_bw", "1048576", 200),
	overRoCE("write 1 MiB", "ib_write_bw", "1048576", 200),
	overRoCE("read 1 MiB", "ib_read_bw", "1048576", 200),
	{name: "send rate 64 B", perf: "ib_send_bw -s 64 -n 20000", column: rate, unit: "M/s", limit: 2},
}

// runSoftRoCE measures in the machine that the interoperation tests use.
func runSoftRoCE(o *options) error {
	if why := lab.Missing(); why != "" {
		return errors.New(why)
	}
	cfg := lab.Config{Accelerator: o.accel, MemoryMiB: 2048, Logf: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) }}
	for _, m := range softRoCEMeasures {
		cfg.Programs = append(cfg.Programs, strings.Fields(m.perf)[0])
	}
	ours, err := ownFiles(o.bin)
	if err != nil {
		return err
	}
	cfg.Programs = append(cfg.Programs, ours...)
	if !lab.Isolated() {
		if err := lab.Fetch(cfg); err != nil {
			return err
		}
		status, err := lab.Isolate()
		if err == nil {
			os.Exit(status)
		}
		return err
	}
	g, err := lab.Boot(context.Background(), cfg)
	if err != nil {
		return err
	}
	err = measureSoftRoCE(g, o)
	return errors.Join(err, g.Close())
}

// ownFiles returns rvtsim and the libraries that lie beside it.
func ownFiles(bin string) ([]string, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	files := []string{filepath.Join(bin, "rvtsim")}
	libs, err := filepath.Glob(filepath.Join(bin, "*.so"))
	if err == nil && len(libs) < 2 {
		err = fmt.Errorf("%s has no preload library or no engine: run make build", bin)
	}
	return append(files, libs...), err
}

func measureSoftRoCE(g *lab.Guest, o *options) error {
	// Soft-RoCE holds its port on every address of its network namespace.
	if _, err := guestShell(g, "unshare -n sh -c 'ip link set lo up; rvtsim up --nodes 2'"); err != nil {
		return err
	}
	w := table.NewWriter()
	w.AppendHeader(table.Row{"", "rvtsim", "soft-RoCE", "unit", "rvtsim : soft-RoCE, median (worst to best)", "wanted"})
	for _, m := range softRoCEMeasures {
		if !strings.Contains(m.name, o.only) {
			continue
		}
		var ours, theirs, ratio []float64
		for range o.pairs {
			t, err := inGuest(g, &m, "-d rxe0 -x 1", "", "", "192.0.2.2")
			if err != nil {
				return fmt.Errorf("soft-RoCE: %s: %w", m.name, err)
			}
			p, err := inGuest(g, &m, "-d rvt0 -x 0", node("n1"), node("n2"), "127.0.0.1")
			if err != nil {
				return fmt.Errorf("rvtsim: %s: %w", m.name, err)
			}
			ours, theirs, ratio = append(ours, p), append(theirs, t), append(ratio, p/t)
		}
		row := table.Row{m.name, spread(ours), spread(theirs), m.unit, m.ratios(ratio), m.want()}
		w.AppendRow(row)
		fmt.Fprintln(os.Stderr, row...)
	}
	about := fmt.Sprintf("Both in one virtual machine (QEMU, %s, 2 CPUs, %s) on %s; %d pairs of each, smallest and largest figure in brackets.",
		o.accel, g.Kernel, machine(), o.pairs)
	return publish(w, about, o.out)
}

func node(name string) string { return "rvtsim exec --engine program --node " + name + " -- " }

// inGuest runs a server and a client in the machine and returns the client's figure.
func inGuest(g *lab.Guest, m *measure, device, server, client, address string) (float64, error) {
	const port = "18515"
	prog := m.perf + " " + device + " -F -p " + port
	out, err := guestShell(g, fmt.Sprintf("%s%s >/tmp/server 2>&1 & i=0; until netstat -ltn | grep -q :%s; do sleep 0.1; i=$((i+1)); [ $i -lt 300 ] || { cat /tmp/server; exit 1; }; done; %s%s %s; s=$?; wait; exit $s",
		server, prog, port, client, prog, address))
	if err != nil {
		return 0, err
	}
	return figure(out, "#bytes", m.column)
}

// guestShell runs a command in the machine, not for ever.
func guestShell(g *lab.Guest, command string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	return g.Shell(ctx, "export XDG_RUNTIME_DIR=/run HOME=/tmp; "+command)
}
