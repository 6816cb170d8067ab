//go:build !linux

package verbs

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// lanes do not exist on this system: packets go by UDP.
type lanes struct{}

func openLanes(port fabric.Port, _ string) (*lanes, fabric.Port, error) { return nil, port, nil }

func (*lanes) reach(*Device, ib.GID, ib.QPN) {}
func (*lanes) leave()                        {}
func (*lanes) release()                      {}
