package sweep

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server is a NATS server inside this process, for sweeps that need no other machine.
type Server struct {
	s   *server.Server
	dir string
}

// StartServer starts a server on a free port of the loopback interface. Its data lie in
// a directory that Close removes.
func StartServer() (*Server, error) {
	dir, err := os.MkdirTemp("", "rvtsim-sweep-")
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "rvtsim", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		s.Shutdown()
		return nil, errors.Join(fmt.Errorf("sweep: the server inside this program did not start"), os.RemoveAll(dir))
	}
	return &Server{s, dir}, nil
}

// URL is where the server listens.
func (s *Server) URL() string { return s.s.ClientURL() }

// Close stops the server and removes its data.
func (s *Server) Close() error {
	s.s.Shutdown()
	s.s.WaitForShutdown()
	return os.RemoveAll(s.dir)
}
