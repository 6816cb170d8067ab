//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/topology"
)

func newFault() *cobra.Command {
	var f faultFlags
	cmd := &cobra.Command{
		Use:   "fault ACTION [KEY=VALUE...]",
		Short: "Let something go wrong in a running network, or right again",
		Long: `Fault changes a network that runs: its links, its nodes, and what the queue pairs,
queues and memory regions of programs meet. Keys and values are those of the faults of
a topology file, written in YAML; a node and perhaps a queue pair stand where a file
has a flow. "rvtsim ls" shows the links that are not perfect.

With --file the faults and random_faults of a topology file, or of a file with nothing
but these, happen at their times, counted from now. "rvtsim ls" shows how far they are;
another --file or --stop ends what is left.

Actions, and the keys that they take:

` + topology.LiveHelp(),
		Example: "  rvtsim fault set_impairment loss=5%\n  rvtsim fault set_impairment from=n1 to=n2 'rules=[{action: drop, opcode: ACKNOWLEDGE, nth: 3}]'\n" +
			"  rvtsim fault partition 'between=[n1, n2]'\n  rvtsim fault heal\n  rvtsim fault complete_with node=n1 qpn=0x11 status=RETRY_EXC_ERR\n" +
			"  rvtsim fault --file examples/schedules/bad-second.yaml --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return usage(err)
			}
			what, done, err := f.do(cmd.Context(), args)
			var refused *daemon.FaultError
			switch {
			case errors.As(err, &refused):
				return usage(err)
			case err != nil:
				return envErr(fmt.Errorf("daemon %q: %w", f.name, err))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", what, done)
			return nil
		},
	}
	cmd.Flags().StringVar(&f.name, "name", daemon.DefaultName, "name of the daemon")
	cmd.Flags().StringVar(&f.file, "file", "", "carry out the schedule of faults of `FILE`")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "with --file: return when the last fault has been carried out")
	cmd.Flags().BoolVar(&f.stop, "stop", false, "end the schedule: what is left of it does not come")
	return cmd
}

type faultFlags struct {
	name, file string
	wait, stop bool
}

// check refuses what does not go together.
func (f *faultFlags) check(args []string) error {
	switch {
	case f.stop && (f.file != "" || f.wait || len(args) > 0):
		return errors.New("fault --stop: takes nothing else but --name")
	case f.file != "" && len(args) > 0:
		return fmt.Errorf("fault --file %s: found the action %s beside it; expected one or the other", f.file, args[0])
	case f.wait && f.file == "":
		return errors.New("fault --wait: goes with --file")
	case len(args) == 0 && f.file == "" && !f.stop:
		return errors.New("fault: expected an action, --file FILE or --stop; see rvtsim fault --help")
	}
	if f.file == "" && !f.stop {
		_, err := faultText(args)
		return err
	}
	return nil
}

// do says what it was that was done.
func (f *faultFlags) do(ctx context.Context, args []string) (what, done string, err error) {
	socket := daemon.SocketPath(f.name)
	switch {
	case f.stop:
		done, err = daemon.HaltSchedule(socket)
		return "stop", done, err
	case f.file != "":
		text, err := os.ReadFile(f.file)
		if err != nil {
			return "", "", &daemon.FaultError{What: err.Error()}
		}
		if done, err = daemon.BeginSchedule(socket, f.file, text); err == nil && f.wait {
			done, err = await(ctx, socket)
		}
		return f.file, done, err
	}
	text, _ := faultText(args) // checked before
	done, err = daemon.Inject(socket, text)
	return args[0], done, err
}

// await waits for the end of a schedule and says how it went.
func await(ctx context.Context, socket string) (string, error) {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		r, err := daemon.Ask(socket)
		if err != nil {
			return "", err
		}
		switch s := r.Schedule; {
		case s == nil:
			return "", errors.New("the daemon was started anew meanwhile")
		case s.Over && s.Done < s.Faults:
			return "", &daemon.FaultError{What: fmt.Sprintf("%s: stopped after %d of %d faults", s.File, s.Done, s.Faults)}
		case s.Over && s.Failed > 0:
			return "", &daemon.FaultError{What: fmt.Sprintf("%s: %d of %d faults were in vain:\n  %s", s.File, s.Failed, s.Faults, strings.Join(s.Why, "\n  "))}
		case s.Over:
			return fmt.Sprintf("%d of %d faults done", s.Done, s.Faults), nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
	}
}

// faultText makes a YAML mapping of the arguments.
func faultText(args []string) (string, error) {
	keys := []string{"action: " + args[0]}
	for _, a := range args[1:] {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return "", fmt.Errorf("%q: want KEY=VALUE", a)
		}
		keys = append(keys, k+": "+v)
	}
	return "{" + strings.Join(keys, ", ") + "}", nil
}
