package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/sluice-proxy/sluice/test/e2e/apiserver/credentials"
)

// config is what the command line says.
type config struct {
	dataDir      string         // everything that lasts
	server       netip.AddrPort // where clients reach it
	serviceCIDRs string         // one or two prefixes, separated by a comma
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
	var address string
	var port int
	flags := flag.NewFlagSet("apiserver", flag.ContinueOnError)
	flags.StringVar(&c.dataDir, "data-dir", "", "folder for the database and the credentials, made when missing (required)")
	flags.StringVar(&address, "bind-address", "127.0.0.1", "address to serve at, which clients also use")
	flags.IntVar(&port, "secure-port", 6443, "port to serve at")
	flags.StringVar(&c.serviceCIDRs, "service-cluster-ip-range", "172.30.0.0/16,fd00:172:30::/112", "one or two prefixes for cluster IPs, the first being the preferred family")
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
	return c, nil
}

// run serves until a signal asks it to stop. The order matters at both ends: kube-apiserver needs its
// database before it starts and until after it has stopped.
func run(c config) error {
	serviceAddrs, err := firstAddrs(c.serviceCIDRs)
	if err != nil {
		return err
	}
	files, err := credentials.Prepare(filepath.Join(c.dataDir, "credentials"), c.server, serviceAddrs...)
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
	return []string{
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
		"--authorization-mode=RBAC",
		// Pods would need a service account, and the controller that makes those is not here.
		"--disable-admission-plugins=ServiceAccount",
		// Nobody but the test changes an EndpointSlice, not even when this server stops.
		"--endpoint-reconciler-type=none",
		// Clients always have watches open, and a stop would wait a minute for them.
		"--shutdown-watch-termination-grace-period=1s",
		// Also the time that a stop gives to idle connections.
		"--request-timeout=10s",
		// A test has few clients; fair queuing and profiling only cost time here.
		"--enable-priority-and-fairness=false",
		"--profiling=false",
		"--v=" + strconv.Itoa(c.verbosity),
	}
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
