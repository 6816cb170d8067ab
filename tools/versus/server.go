//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/rvtsim/rvtsim/internal/loopback"
)

// server is a program that listens at a TCP port.
type server struct {
	*exec.Cmd
	port  string
	said  bytes.Buffer  // to be read when it has ended
	ended chan struct{} // closed
}

// errTaken says that a server found somebody else at its port.
var errTaken = errors.New("somebody else listens at the server's port")

// serve starts a server and waits until it listens. One that finds its port taken, by
// another run of this tool for instance, is started once more with another port.
func serve(ctx context.Context, start side) (*server, error) {
	var err error
	for range 3 {
		var port string
		if port, err = loopback.Port(); err != nil {
			return nil, err
		}
		s := &server{Cmd: start(ctx, port), port: port, ended: make(chan struct{})}
		s.Stdout, s.Stderr = &s.said, &s.said
		if err = s.Start(); err != nil {
			return nil, err
		}
		go func() { _ = s.Wait(); close(s.ended) }()
		if err = s.listening(ctx); err == nil {
			return s, nil
		}
		_ = s.Process.Kill()
		<-s.ended
		if err = fmt.Errorf("%w\n%s", err, s.said.String()); !errors.Is(err, errTaken) {
			break
		}
	}
	return nil, err
}

// listening waits until the server listens. It must be the server itself: a client that
// takes somebody else for it "couldn't connect", or does and takes another one's place.
func (s *server) listening(ctx context.Context) error {
	for ctx.Err() == nil {
		ended := false
		select {
		case <-s.ended:
			ended = true
		default:
		}
		own, other := loopback.Listens(s.Process.Pid, s.port)
		switch {
		case own && !ended:
			return nil
		case ended && other:
			return errTaken
		case ended:
			return errors.New("the server ended before it listened")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the server does not listen")
}
