package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
)

func proxyCommand() *cobra.Command {
	var o options
	var kubeconfig, master string
	cmd := &cobra.Command{
		Use:   "proxy --kubeconfig FILE --hostname-override NODE",
		Short: "Serve the Services of a cluster on this node, in place of kube-proxy",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), &o, func(log *zap.Logger, s proxy.NodeSettings) proxy.Source {
				return func(ctx context.Context, cache *source.Cache) error {
					api, err := kube.New(kube.Config{
						Kubeconfig: kubeconfig, Master: master, NodeName: s.Name,
						UserAgent: fmt.Sprintf("sluice/%s", version),
					}, cache, log)
					if err != nil {
						return err
					}
					return api.Run(ctx)
				}
			})
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; empty means the pod's service account")
	cmd.Flags().StringVar(&master, "master", "", "URL of the API server; overrides the kubeconfig")
	return cmd
}
