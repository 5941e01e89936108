// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
)

// flags are the flags that all commands have.
type flags struct {
	inspect.Output
	kubeconfig, context, namespace string
	proxyNamespace, selector       string
	port                           uint16
	parallel                       int
	nodeTimeout                    time.Duration
	version                        string
	tally                          *tally
}

// parallelMax bounds --parallel: an API server limits the requests of a user, and keeps a connection for each.
const parallelMax = 512

// Command returns the root command, which contains all others. Version is the version of the program.
func Command(use, version string) *cobra.Command {
	root := &cobra.Command{
		Use:         use,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sluice"}, // unless it has a parent
		Short:       "Ask the proxies of all nodes",
		Long: `Ask the proxies of all nodes, through the API server and with your own rights. The
proxies need inspection.bindAddress (deploy/fleet). You need the rights to list Pods and
Nodes, to get pods/proxy and to create a token for the ServiceAccount sluice-fleet in the
namespace of Sluice; see docs/kubectl-sluice.md.

The exit status is 0 if all nodes answered and the answer is good, 1 if not, and 2 after
an error in the command line.`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, words []string) error {
			if len(words) > 0 {
				return inspect.Misused("unknown command %q (see %s --help)", words[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return inspect.Misused("%w (see %s --help)", err, cmd.CommandPath())
	})
	for _, command := range []func(*flags) *cobra.Command{
		(*flags).statusCommand, (*flags).whereCommand, (*flags).waitCommand, (*flags).diffCommand, (*flags).topCommand, (*flags).explainCommand,
		(*flags).observeCommand, (*flags).uiCommand,
	} {
		f := &flags{version: version}
		c := command(f)
		f.bind(c)
		root.AddCommand(c)
	}
	return root
}

// bind adds the flags to one command. The root does not have them, so that the reference lists them for each command.
func (f *flags) bind(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: as kubectl)")
	s.StringVar(&f.context, "context", "", "context of the kubeconfig (default: the current one)")
	s.StringVarP(&f.namespace, "namespace", "n", "", "namespace of the objects that arguments name (default: that of the context)")
	s.StringVar(&f.proxyNamespace, "proxy-namespace", "kube-system", "namespace of the pods of Sluice")
	s.StringVar(&f.selector, "selector", "app.kubernetes.io/name=sluice", "labels of the pods of Sluice")
	s.Uint16Var(&f.port, "port", 10253, "port of inspection.bindAddress")
	s.IntVar(&f.parallel, "parallel", 64, fmt.Sprintf("number of nodes that are asked at a time, at most %d", parallelMax))
	s.DurationVar(&f.nodeTimeout, "node-timeout", 10*time.Second, "how long one node may take to answer")
	client.BindTables(cmd, &f.Output)
	client.Before(cmd, func(*cobra.Command) error {
		switch {
		case f.parallel < 1 || f.parallel > parallelMax:
			return fmt.Errorf("parallel %d: must be from 1 to %d", f.parallel, parallelMax)
		case f.nodeTimeout <= 0:
			return fmt.Errorf("node-timeout %v: must be positive", f.nodeTimeout)
		case f.port == 0:
			return errors.New("port 0: must be from 1 to 65535")
		}
		return nil
	})
}

// report is the answer of a command.
type report interface {
	inspect.Answer
	// verdict returns the error with which the command ends.
	verdict() error
}

// show asks a cluster for a report, prints it, and returns its verdict.
func (f *flags) show(cmd *cobra.Command, ask func(*cluster) (report, error)) error {
	c, err := f.connect()
	if err != nil {
		return err
	}
	r, err := ask(c)
	if err != nil {
		return err
	}
	if err := f.Print(cmd.OutOrStdout(), r); err != nil {
		return err
	}
	return r.verdict()
}

// arguments returns a check that there is one argument for each of wanted.
func arguments(wanted ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(wanted) {
			return nil
		}
		return inspect.Misused("%s: the arguments must be %q, got %q", cmd.CommandPath(), strings.Join(wanted, " "), strings.Join(args, " "))
	}
}

// objectNamed returns the name in an argument such as svc/web; kinds are the words that may precede it.
func objectNamed(text string, kinds []string) (string, error) {
	object, err := inspect.ParseName("", text, kinds)
	if err != nil || object.Namespace != "" {
		return "", inspect.Misused("%q: must be %s/NAME; -n selects the namespace", text, kinds[0])
	}
	return object.Name, nil
}
