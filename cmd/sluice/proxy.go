package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
)

// proxyName is the command that stands in for kube-proxy.
const proxyName = "proxy"

func proxyCommand() *cobra.Command {
	o := options{}
	cmd := &cobra.Command{
		Use:   proxyName + " --config FILE | --kubeconfig FILE --hostname-override NODE",
		Short: "Serve the Services of a cluster on this node, in place of kube-proxy",
		Long: `Serve the Services of a cluster on this node, in place of kube-proxy. Every flag
and every field of the configuration file of kube-proxy v1.36 is accepted; a second
document in the file (kind SluiceConfiguration) holds what it has no name for.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.proxy(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.flags = config.BindProxy(cmd.Flags())
	o.flagValues = func() map[string]string {
		values := make(map[string]string)
		cmd.Flags().VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
		return values
	}
	return cmd
}

// proxy does what the flags ask for: serve, or one of the things that end at once.
func (o *options) proxy(ctx context.Context, out io.Writer) error {
	if o.flags.Version.Show {
		return printVersion(out, o.flags.Version)
	}
	if err := o.load(); err != nil {
		return err
	}
	if o.WriteTo != "" {
		return o.WriteFile(o.WriteTo)
	}
	if err := needPrivilege(""); err != nil {
		return err
	}
	switch {
	case o.Cleanup:
		return o.cleanUp(ctx, out)
	case o.InitOnly:
		return o.initialise(ctx)
	default:
		return serve(ctx, o, cluster)
	}
}

// cluster serves what an API server says. Only files are read here.
func cluster(o *options) (*rest.Config, feed, error) {
	api := o.api()
	client, err := kube.RESTConfig(api)
	if err != nil {
		return nil, nil, err
	}
	return client, func(s *server) proxy.Source {
		api.NodeName = s.settings.Name
		return func(ctx context.Context, cache *source.Cache) error {
			from, err := kube.NewForREST(api, client, cache, s.log.Logger)
			if err != nil {
				return err
			}
			s.source.Store(from)
			return from.Run(ctx)
		}
	}, nil
}

// api says how to reach the API server.
func (o *options) api() kube.Config {
	c := &o.KubeProxy.ClientConnection
	return kube.Config{
		Kubeconfig: c.Kubeconfig, Master: o.Master, QPS: c.QPS, Burst: int(c.Burst),
		ContentType: c.ContentType, AcceptContentTypes: c.AcceptContentTypes,
		ResyncPeriod: o.KubeProxy.ConfigSyncPeriod.Duration, UserAgent: fmt.Sprintf("sluice/%s", version),
	}
}
