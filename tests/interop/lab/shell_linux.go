package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// Process is a shell command that runs in the machine.
type Process struct {
	conn   net.Conn
	ended  chan struct{}
	output string // valid when ended is closed
	err    error
	stop   func() bool
}

// ExitError says that a command in the machine failed.
type ExitError struct {
	Command string
	Status  int
	Output  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", e.Command, e.Status, strings.TrimSpace(e.Output))
}

// Start runs a shell command in the machine. It is killed when ctx ends.
func (g *Guest) Start(ctx context.Context, command string) (*Process, error) {
	c, err := g.dial(ctx, "sh "+command)
	if err != nil {
		return nil, err
	}
	p := &Process{conn: c, ended: make(chan struct{})}
	p.stop = context.AfterFunc(ctx, func() { c.Close() })
	go func() {
		defer close(p.ended)
		defer c.Close()
		b, err := io.ReadAll(c)
		p.output, p.err = parseExit(command, string(b))
		if err != nil && ctx.Err() != nil {
			p.err = fmt.Errorf("%s: %w; so far: %s", command, ctx.Err(), strings.TrimSpace(string(b)))
		}
	}()
	return p, nil
}

// parseExit splits the last line off.
func parseExit(command, all string) (output string, err error) {
	i := strings.LastIndex(all, "\nexit ")
	if i < 0 {
		return all, fmt.Errorf("%s: the machine hung up", command)
	}
	output = all[:i]
	status, err := strconv.Atoi(strings.TrimSpace(all[i+len("\nexit "):]))
	switch {
	case err != nil:
		return output, errors.New("the agent does not speak its protocol")
	case status != 0:
		return output, &ExitError{Command: command, Status: status, Output: output}
	}
	return output, nil
}

// Wait returns the command's output when it has ended; the error is an *ExitError if its
// status is not 0.
func (p *Process) Wait() (string, error) {
	<-p.ended
	p.stop()
	return p.output, p.err
}

// Ended is closed when the command has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Shell runs a shell command in the machine to its end.
func (g *Guest) Shell(ctx context.Context, command string) (string, error) {
	p, err := g.Start(ctx, command)
	if err != nil {
		return "", err
	}
	return p.Wait()
}
