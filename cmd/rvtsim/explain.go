package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/explain"
)

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [STATUS | EVENT | 0xCAUSE | [VERB] ERRNO | CODE | ERROR TEXT]",
		Short: "Say what a status, event, error or code means and what to check",
		Long: `Explain says what a verbs program was told, what usually leads to it, and what to
look at. It knows

  statuses of work completions   RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR, 12
  causes (vendor_err)            0x304
  asynchronous events            QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR
  errors of refused calls        ENOMEM, post_send ENOMEM, or the text that was printed
  codes of strict mode           STRICT-SQ-01
  events of connections          REJECTED 8, RDMA_CM_EVENT_UNREACHABLE, error -110

Without arguments it lists them all. With --node it tells what the programs on a node of
a daemon ran into: the calls that were refused, and why; the work that failed, with its
history; connections that were not made; and misuse, if the node is strict.`,
		Example: "  rvtsim explain RNR_RETRY_EXC_ERR\n  rvtsim explain 0x206\n  rvtsim explain post_send ENOMEM\n  rvtsim explain --node n1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), explain.Index())
				return nil
			}
			name := strings.Join(args, " ")
			text, ok := explain.Lookup(name)
			if !ok {
				return usage(fmt.Errorf("explain: nothing is known of %q; 'rvtsim explain' lists what is", name))
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		},
	}
	addNodeExplain(cmd)
	return cmd
}
