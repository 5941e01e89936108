package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
)

// nodeWait is how long kube-proxy waits for its Node to exist, too (v1.36).
const nodeWait = 30 * time.Second

func proxyCommand() *cobra.Command {
	o := options{nodeWait: nodeWait}
	var kubeconfig, master string
	cmd := &cobra.Command{
		Use:   "proxy --kubeconfig FILE --hostname-override NODE",
		Short: "Serve the Services of a cluster on this node, in place of kube-proxy",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := needPrivilege(""); err != nil {
				return err
			}
			config := kube.Config{Kubeconfig: kubeconfig, Master: master, UserAgent: fmt.Sprintf("sluice/%s", version)}
			// Read before anything on this node is touched.
			client, err := kube.RESTConfig(config)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), &o, func(log *zap.Logger, s proxy.NodeSettings) proxy.Source {
				config.NodeName = s.Name
				return func(ctx context.Context, cache *source.Cache) error {
					api, err := kube.NewForREST(config, client, cache, log)
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
