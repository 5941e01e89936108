package harness

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// UpstreamImages are archives for the pods of Kubernetes' end-to-end tests.
type UpstreamImages struct {
	Agnhost, CoreDNS, BoomServer string
}

// AgnhostImage is the name of the image with agnhost on the nodes.
const AgnhostImage = "sluice.test/agnhost:published"

// agnhostPackages are the programs that these tests run in the images of agnhost, busybox, dnsutils and
// iptables.
var agnhostPackages = []string{"bash", "coreutils", "dash", "grep", "sed", "hostname", "libc-bin", "curl", "wget",
	"bind9-dnsutils", "netcat-openbsd", "iproute2", "iperf", "util-linux", "socat", "procps", "iptables", "conntrack"}

// BoomServerImage is the name of the image with the server that sends packets that conntrack rejects.
const BoomServerImage = "sluice.test/boom-server:boom-server-static"

// MakeUpstreamImages writes an archive with agnhost and these programs, one with CoreDNS, and one with the
// server of BoomServerImage.
func MakeUpstreamImages(out string) (UpstreamImages, error) {
	top, err := repository()
	if err != nil {
		return UpstreamImages{}, err
	}
	static := []string{"-tags", "netgo,osusergo", "-ldflags", "-s -w -extldflags=-static"}
	const agnhostPackage = kubernetesModule + "/test/images/agnhost"
	source, err := exec.Command("go", "-C", filepath.Join(top, upstreamModule), "list", "-f", "{{.Dir}}", agnhostPackage).Output()
	if err != nil {
		return UpstreamImages{}, fmt.Errorf("directory of %s: %w", agnhostPackage, err)
	}
	agnhost, err := build("", "e2e-agnhost", upstreamModule, agnhostPackage, static...)
	if err != nil {
		return UpstreamImages{}, err
	}
	coreDNS, err := build("", "e2e-coredns", upstreamModule, "./coredns", static...)
	if err != nil {
		return UpstreamImages{}, err
	}
	boom, err := build("", "e2e-boom-server", upstreamModule, kubernetesModule+"/test/images/regression-issue-74839", static...)
	if err != nil {
		return UpstreamImages{}, err
	}
	porter := filepath.Join(strings.TrimSpace(string(source)), "porter")
	all := UpstreamImages{Agnhost: filepath.Join(out, "agnhost.tar")}
	all.CoreDNS, _, err = makeStaticImage(out, "coredns", coreDNS)
	if err == nil {
		all.BoomServer, _, err = makeStaticImage(out, "boom-server", boom)
	}
	image := debianImage{name: AgnhostImage, binary: agnhost, command: "pause", packages: agnhostPackages,
		links: map[string]string{"agnhost": "usr/local/bin/sluice", "bin/nc": "nc.openbsd", "coredns": filepath.Base(coreDNS)},
		// agnhost serves HTTPS with the first two.
		files: []string{filepath.Join(porter, "localhost.crt"), filepath.Join(porter, "localhost.key"), coreDNS}}
	return all, errors.Join(err, image.make(top, all.Agnhost))
}

// upstreamModule has the programs that the module of these tests does not build.
const upstreamModule = "test/e2e/upstream/programs"

// UpstreamSuite builds Kubernetes' end-to-end tests of the network and the program that runs them.
func UpstreamSuite() (suite, ginkgo string, err error) {
	if ginkgo, err = build("", "e2e-ginkgo", upstreamModule, "github.com/onsi/ginkgo/v2/ginkgo"); err != nil {
		return "", "", err
	}
	suite, err = compile("e2e-suite.test", upstreamModule, []string{"test", "-c"}, "./suite")
	return suite, ginkgo, err
}
