// SPDX-License-Identifier: Apache-2.0

// Command apiserver is a Kubernetes control plane small enough for a test: the real kube-apiserver,
// built from the published module, with etcd inside the same process.
//
//	apiserver --data-dir DIR [--bind-address 127.0.0.1] [--secure-port 6443] [--node NAME,NAME] [--fairness]
//
// It writes DIR/credentials/admin.kubeconfig (may do everything) and
// DIR/credentials/proxy.kubeconfig (user system:kube-proxy, who has the rights of a service proxy),
// and with --node those of the kubelets, the controller manager and the scheduler. It starts
// and prints one line
//
//	ready https://ADDRESS:PORT
//
// on standard output once /readyz says so. The log of both servers goes to standard error. SIGTERM
// or SIGINT ends it with status 0; started again on the same directory and port, it has everything it
// had.
//
// Requests are authorized with RBAC, as in a cluster, so a missing permission shows. There are no
// controllers, no scheduler and no nodes in this process: EndpointSlices are whatever a test writes. Without
// --node, nothing is written in the background either (no lease of the server's own endpoints), so a test can
// count.
//
// Data is not forced to disk. It survives the death of the process, not that of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/sluice-proxy/sluice/test/e2e/apiserver/credentials"
)

// config holds the flags.
type config struct {
	dataDir      string         // everything that lasts
	server       netip.AddrPort // where clients reach it
	serviceCIDRs string         // one or two prefixes, separated by a comma
	nodes        []string       // with kubelets that run pods
	fairness     bool           // fair queuing, as in a cluster
	verbosity    int            // of kube-apiserver's log
}

func main() {
	c, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(2)
	}
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

func parse(args []string) (config, error) {
	var c config
	var address, nodes string
	var port int
	flags := flag.NewFlagSet("apiserver", flag.ContinueOnError)
	flags.StringVar(&c.dataDir, "data-dir", "", "folder for the database and the credentials, made when missing (required)")
	flags.StringVar(&address, "bind-address", "127.0.0.1", "address to serve at, which clients also use")
	flags.IntVar(&port, "secure-port", 6443, "port to serve at")
	flags.StringVar(&c.serviceCIDRs, "service-cluster-ip-range", "172.30.0.0/16,fd00:172:30::/112", "one or two prefixes for cluster IPs, the first being the preferred family")
	flags.StringVar(&nodes, "node", "", "names of nodes with kubelets, separated by commas: pods have service accounts, and kubelets the rights that they have in a cluster")
	flags.BoolVar(&c.fairness, "fairness", false, "queue requests as in a cluster (priority and fairness), for a server with many clients")
	flags.IntVar(&c.verbosity, "v", 1, "verbosity of the log")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	if c.dataDir == "" {
		return config{}, errors.New("--data-dir is required: a folder for the database and the credentials")
	}
	addr, err := netip.ParseAddr(address)
	if err != nil || addr.IsUnspecified() {
		return config{}, fmt.Errorf("--bind-address %q: want one address of this machine, such as 127.0.0.1", address)
	}
	if port < 1 || port > 65535 {
		return config{}, fmt.Errorf("--secure-port %d: want 1 to 65535; it stays the same across restarts, so it cannot be chosen here", port)
	}
	c.server = netip.AddrPortFrom(addr, uint16(port))
	if nodes != "" {
		c.nodes = strings.Split(nodes, ",")
	}
	return c, nil
}

// run serves until a signal asks it to stop. The order matters at both ends: kube-apiserver needs
// its database before it starts and until after it has stopped.
func run(c config) error {
	serviceAddrs, err := firstAddrs(c.serviceCIDRs)
	if err != nil {
		return err
	}
	files, err := credentials.Prepare(filepath.Join(c.dataDir, "credentials"), c.server, c.nodes, serviceAddrs...)
	if err != nil {
		return err
	}
	database, err := startEtcd(filepath.Join(c.dataDir, "etcd"))
	if err != nil {
		return err
	}
	defer database.Close()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go announce(ctx, files.AdminKubeconfig, os.Stdout)

	command := app.NewAPIServerCommand() // takes SIGTERM and SIGINT from here on
	command.SetArgs(arguments(c, files, database.Clients[0].Addr().String()))
	if err := command.Execute(); err != nil {
		return fmt.Errorf("kube-apiserver at %s: %w", c.server, err)
	}
	return nil
}

// arguments is kube-apiserver's command line.
func arguments(c config, files credentials.Files, etcd string) []string {
	args := []string{
		"--etcd-servers=http://" + etcd,
		"--bind-address=" + c.server.Addr().String(),
		"--secure-port=" + strconv.Itoa(int(c.server.Port())),
		"--advertise-address=" + c.server.Addr().String(),
		"--tls-cert-file=" + files.ServingCert,
		"--tls-private-key-file=" + files.ServingKey,
		"--token-auth-file=" + files.Tokens,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + files.ServiceAccountKey,
		"--service-account-signing-key-file=" + files.ServiceAccountKey,
		"--service-cluster-ip-range=" + c.serviceCIDRs,
		"--allow-privileged=true",
		// Clients always have watches open, and a stop would wait a minute for them.
		"--shutdown-watch-termination-grace-period=1s",
		// Most tests have few clients; fair queuing and profiling only cost time then.
		"--enable-priority-and-fairness=" + strconv.FormatBool(c.fairness),
		"--profiling=false",
		"--v=" + strconv.Itoa(c.verbosity),
	}
	if !c.fairness && len(c.nodes) == 0 {
		// Also the time that a stop gives to idle connections. Of it, a request may wait a quarter in a queue.
		args = append(args, "--request-timeout=10s")
	}
	if len(c.nodes) > 0 {
		return append(args, "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			// For kubectl logs and exec. Nobody here resolves the names of nodes.
			"--kubelet-client-certificate="+files.ServingCert,
			"--kubelet-client-key="+files.ServingKey,
			"--kubelet-preferred-address-types=InternalIP")
	}
	return append(args, "--authorization-mode=RBAC",
		// Only the test changes an EndpointSlice, even when this server stops.
		"--endpoint-reconciler-type=none",
		// Pods would need a service account, and no controller makes those here.
		"--disable-admission-plugins=ServiceAccount")
}

// firstAddrs returns the address that the API server's own Service gets in each prefix.
func firstAddrs(cidrs string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for cidr := range strings.SplitSeq(cidrs, ",") {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		addrs = append(addrs, prefix.Masked().Addr().Next())
	}
	return addrs, nil
}

// announce prints the ready line once the server reports that it is ready, or gives up with ctx.
// The reader of the line has to notice a server that never becomes ready.
func announce(ctx context.Context, kubeconfig string, out io.Writer) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver: cannot watch for readiness:", err)
		return
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apiserver: cannot watch for readiness:", err)
		return
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			fmt.Fprintln(out, "ready", config.Host)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// etcdStartMax bounds the start of the database; a fraction of a second is usual.
const etcdStartMax = 30 * time.Second

// startEtcd starts a database of one member in this process. It serves on loopback, at a port that
// the kernel picks: only this process needs to know it.
func startEtcd(dir string) (*embed.Etcd, error) {
	anyPort := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "warn"
	c.LogOutputs = []string{"stderr"}
	c.ListenClientUrls = []url.URL{anyPort}
	c.ListenPeerUrls = []url.URL{anyPort}
	// The member's entry for itself. It never changes across restarts, and no client connects to
	// it.
	c.AdvertiseClientUrls = []url.URL{anyPort}
	c.AdvertisePeerUrls = []url.URL{anyPort}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false // it would dial the entry above, for nobody
	// A single member elects itself as soon as it may, without a network to wait for.
	c.TickMs = 10
	c.ElectionMs = 100
	// Package embed leaves this at zero, which makes every request a slow one that is worth a
	// warning.
	c.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	// What the process wrote survives the process without this, but not a power failure.
	c.UnsafeNoFsync = true

	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("etcd in %s: %w", dir, err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err := <-e.Err():
		e.Close()
		return nil, fmt.Errorf("etcd in %s: %w", dir, err)
	case <-time.After(etcdStartMax):
		e.Close()
		return nil, fmt.Errorf("etcd in %s: not ready after %v", dir, etcdStartMax)
	}
}
