// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-proxy/sluice/internal/inspect"
)

// completionTime bounds a query for the shell's completion, because a user waits for it.
const completionTime = 2 * time.Second

// names queries the proxy for names. If the query fails, names returns none, so the shell completes nothing.
func (flags *clientFlags) names(cmd *cobra.Command) *inspect.Names {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	names, err := flags.client().Names(ctx, "")
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return &inspect.Names{}
	}
	return names
}

// completeService completes NAMESPACE/NAME: first the namespace, then the name.
func (flags *clientFlags) completeService(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := flags.names(cmd)
	if strings.Contains(begun, "/") || len(names.Namespaces) == 1 {
		return beginningWith(begun, names.Services), cobra.ShellCompDirectiveNoFileComp
	}
	var namespaces []string
	for _, namespace := range names.Namespaces {
		namespaces = append(namespaces, namespace+"/")
	}
	return beginningWith(begun, namespaces), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func beginningWith(begun string, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, begun) })
}
