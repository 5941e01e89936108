// SPDX-License-Identifier: Apache-2.0

// Command node is a Kubernetes node inside the network namespace that it is started in: containerd,
// runc and the network plugins of Debian, and a real kubelet, with their own view of processes,
// mounts, control groups and the host name. Nothing on the machine itself changes.
//
//	node --name n1 --address 10.10.0.1,fd00:10:10::1 --pod-cidr 10.244.1.128/25,fd00:244:1::1:0/112 \
//	     --kubelet bin/e2e-kubelet --kubeconfig FILE --cluster-dns 172.30.0.10 --client-ca FILE \
//	     --pause-image IMAGE --logs DIR
//
// It prints "pid N", with the process id of the node's first process, and runs until SIGTERM or
// SIGINT. All that the node wrote is in memory, and gone with it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// config holds the flags.
type config struct {
	name       string
	addresses  []netip.Addr   // the node's, one per family
	podCIDRs   []netip.Prefix // for its pods, one per family
	kubelet    string         // the binary
	kubeconfig string         // the kubelet's
	clusterDNS string         // the address of the cluster's DNS server
	clientCA   string         // of who may ask the kubelet
	pauseImage string
	logs       string // directory for the logs of containerd and the kubelet
}

// inside, as the first argument, marks the second stage: the first process of the new namespaces.
const inside = "inside"

func main() {
	args, run := os.Args[1:], start
	if len(args) > 0 && args[0] == inside {
		args, run = args[1:], runInside
	}
	c, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(2)
	}
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

func parse(args []string) (config, error) {
	var c config
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.StringVar(&c.name, "name", "", "name of the node")
	flags.Func("address", "addresses of the node, one per family", func(text string) error {
		for one := range strings.SplitSeq(text, ",") {
			addr, err := netip.ParseAddr(one)
			if err != nil {
				return err
			}
			c.addresses = append(c.addresses, addr)
		}
		return nil
	})
	flags.Func("pod-cidr", "prefixes for the node's pods, one per family", func(text string) error {
		for one := range strings.SplitSeq(text, ",") {
			prefix, err := netip.ParsePrefix(one)
			if err != nil {
				return err
			}
			c.podCIDRs = append(c.podCIDRs, prefix)
		}
		return nil
	})
	flags.StringVar(&c.kubelet, "kubelet", "", "the kubelet's binary")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "the kubelet's kubeconfig")
	flags.StringVar(&c.clusterDNS, "cluster-dns", "", "address of the cluster's DNS server")
	flags.StringVar(&c.clientCA, "client-ca", "", "the authority whose certificates the kubelet trusts")
	flags.StringVar(&c.pauseImage, "pause-image", "", "image of a pod's first process, which must be imported")
	flags.StringVar(&c.logs, "logs", "", "folder for the logs of containerd and the kubelet")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	var missing []string
	flags.VisitAll(func(f *flag.Flag) {
		set := false
		flags.Visit(func(given *flag.Flag) { set = set || given.Name == f.Name })
		if !set {
			missing = append(missing, "--"+f.Name)
		}
	})
	if len(missing) > 0 || flags.NArg() > 0 {
		return config{}, fmt.Errorf("missing flags %v, unexpected arguments %q; see --help", missing, flags.Args())
	}
	return c, nil
}

// start makes the node's control group and runs the second stage in new namespaces.
func start(c config) error {
	if err := c.check(); err != nil {
		return err
	}
	groups, err := joinControlGroups()
	if err != nil {
		return errors.Join(err, groups.remove())
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the child gets its signal when this thread dies
	child := exec.Command(self, append([]string{inside}, os.Args[1:]...)...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP,
		Pdeathsig:  syscall.SIGKILL,
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if err := child.Start(); err != nil {
		return errors.Join(fmt.Errorf("new namespaces: %w; be root", err), groups.remove())
	}
	if err := groups.leave(); err != nil {
		return errors.Join(err, child.Process.Kill(), child.Wait(), groups.remove())
	}
	fmt.Println("pid", child.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case <-stop:
		// The kernel kills whatever is in a process namespace with its first process, and Wait
		// returns after the last of them.
		err = child.Process.Kill()
		<-ended
	case err = <-ended:
		err = fmt.Errorf("ended by itself: %w", err)
	}
	return errors.Join(err, groups.remove())
}

// programs are the commands of Debian packages that a node runs.
var programs = map[string]string{
	"containerd": "containerd", "containerd-shim-runc-v2": "containerd", "ctr": "containerd", "runc": "runc",
	"iptables": "iptables", "mount": "mount", "ethtool": "ethtool",
}

// pluginDir is where Debian has the network plugins.
const pluginDir = "/usr/lib/cni"

func (c config) check() error {
	var errs []error
	for program, pkg := range programs {
		if _, err := exec.LookPath(program); err != nil {
			errs = append(errs, fmt.Errorf("%w; install the package %s", err, pkg))
		}
	}
	for _, plugin := range []string{"ptp", "portmap", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(pluginDir, plugin)); err != nil {
			errs = append(errs, fmt.Errorf("%w; install the package containernetworking-plugins", err))
		}
	}
	return errors.Join(errs...)
}
