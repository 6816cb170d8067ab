// Command rvtsim is the simulator's command line: it runs topologies in real or
// virtual time and holds the engine against captures of real adapters.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitOK    = 0
	exitFail  = 1 // a check or an expectation failed
	exitUsage = 2 // bad usage or a bad file
	exitEnv   = 3 // the environment failed: a port in use, say
)

// exitError carries an exit code. A nil Err means that everything was said already.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

func usage(err error) error { return &exitError{exitUsage, err} }
func envErr(err error) error {
	return &exitError{exitEnv, err}
}

func main() { os.Exit(run(os.Args[1:])) }

// run executes a command line and returns the exit code.
func run(args []string) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err == nil {
		return exitOK
	}
	code := exitUsage // what cobra itself refuses: unknown flags, commands, arguments
	var e *exitError
	if errors.As(err, &e) {
		code = e.Code
		if e.Err == nil {
			return code
		}
	}
	for i, line := range strings.Split(strings.TrimRight(err.Error(), "\n"), "\n") {
		if i == 0 {
			line = "rvtsim: " + line
		}
		fmt.Fprintln(os.Stderr, line)
	}
	if code == exitUsage && e == nil {
		fmt.Fprintf(os.Stderr, "Run 'rvtsim help' for usage.\n")
	}
	return code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rvtsim",
		Short: "A software RDMA adapter in user space: verbs, RoCE v2, simulation",
		Long: `rvtsim is a software RDMA adapter that runs entirely in user space, modelled on
the Linux kernel's rdmavt. It speaks RoCE v2 on UDP port 4791.

Exit codes: 0 success, 1 a check failed, 2 bad usage or a bad file, 3 the
environment failed (a port in use, say).`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newRun(), newValidate(), newReplay(), newSim(), newExplain(), newConform(), newVersion())
	root.AddCommand(daemonCommands()...)
	return root
}
