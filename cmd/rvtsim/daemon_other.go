//go:build !linux

package main

import "github.com/spf13/cobra"

// daemonCommands needs Linux: memfd, eventfd, process_vm_readv.
func daemonCommands() []*cobra.Command { return nil }

// addNodeExplain adds nothing: there is no daemon here.
func addNodeExplain(*cobra.Command) {}
