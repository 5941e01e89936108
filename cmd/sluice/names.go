// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// nameFlags are flags that select Services, like the flags of kubectl.
type nameFlags struct {
	namespace, state, fields string
	all                      bool
}

// bindNames adds the flags of all commands, and -n and -A.
func (flags *clientFlags) bindNames(cmd *cobra.Command) {
	flags.bind(cmd)
	f := cmd.Flags()
	f.StringVarP(&flags.namespace, "namespace", "n", "", "namespace of the Services (default: all)")
	f.BoolVarP(&flags.all, "all-namespaces", "A", false, "all namespaces (default)")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	cmd.ValidArgsFunction = flags.completeService
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return beginningWith(begun, flags.names(cmd).Namespaces), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
}

// bindSelectors adds the flags that select Services by their state and by their fields.
func (flags *clientFlags) bindSelectors(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&flags.state, "state", "", "list Services in this state, such as held")
	f.StringVar(&flags.fields, "field-selector", "", "list Services with these fields: metadata.name, metadata.namespace, state")
}

// list returns the Services that arguments name, and flags select.
func (flags *clientFlags) list(cmd *cobra.Command, args []string) (*inspect.ServiceList, error) {
	names, err := flags.named(cmd, args)
	if err != nil {
		return nil, err
	}
	found, err := flags.client().Services(cmd.Context(), flags.namespace)
	if err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if missing := found.Keep(names); len(missing) > 0 {
			return nil, notServed(missing[0].String())
		}
	}
	found.Namespace = flags.namespace
	if err := found.Select(flags.fields, flags.state); err != nil {
		return nil, inspect.Misused("--%w", err)
	}
	return found, nil
}

func notServed(name string) error {
	return errors.New(inspect.Unknown(name))
}

// into sets the namespace and name of a query to those of the only argument. Without it, all names are meant.
func (flags *clientFlags) into(cmd *cobra.Command, args []string, namespace, name *string) error {
	if *namespace = flags.namespace; len(args) == 0 {
		return nil
	}
	if len(args) != 1 {
		path := cmd.CommandPath()
		return inspect.Misused("%s: expected one Service, such as NAMESPACE/NAME, got %q (see %s --help)", path, strings.Join(args, " "), path)
	}
	names, err := flags.named(cmd, args)
	if err == nil {
		*namespace, *name = names[0].Namespace, names[0].Name
	}
	return err
}

// named returns the Services that arguments name. Without a namespace, the name must be in one namespace only.
func (flags *clientFlags) named(cmd *cobra.Command, args []string) (all []inspect.ServiceName, err error) {
	for _, arg := range args {
		n, err := inspect.ParseName(flags.namespace, arg, inspect.ServiceKinds)
		if err != nil {
			return nil, inspect.Misused("%w", err)
		}
		if n.Namespace == "" {
			names, err := flags.client().Names(cmd.Context(), "")
			if err != nil {
				return nil, err
			}
			found := names.Find(n.Name)
			switch len(found) {
			case 0:
				return nil, notServed(n.Name)
			case 1:
				n = found[0]
			default:
				return nil, inspect.Misused("ambiguous Service %s: exists in several namespaces; use %s, or --namespace", n.Name, found[0])
			}
		}
		all = append(all, n)
	}
	return all, nil
}
