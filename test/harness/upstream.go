// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-proxy/sluice/test/testenv"
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
	const agnhostPackage = kubernetesModule + "/test/images/agnhost"
	source, err := exec.Command("go", "-C", filepath.Join(testenv.Root(), upstreamModule), "list", "-f", "{{.Dir}}", agnhostPackage).Output()
	if err != nil {
		return UpstreamImages{}, fmt.Errorf("directory of %s: %w", agnhostPackage, err)
	}
	agnhost, err := compiled("e2e-agnhost", upstreamModule, agnhostPackage)()
	if err != nil {
		return UpstreamImages{}, err
	}
	coreDNS, err := compiled("e2e-coredns", upstreamModule, "./coredns")()
	if err != nil {
		return UpstreamImages{}, err
	}
	boom, err := compiled("e2e-boom-server", upstreamModule, kubernetesModule+"/test/images/regression-issue-74839")()
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
	return all, errors.Join(err, image.make(all.Agnhost))
}

// upstreamModule has the programs that the module of these tests does not build.
const upstreamModule = "test/e2e/upstream/programs"

// UpstreamSuite builds Kubernetes' end-to-end tests of the network and the program that runs them.
func UpstreamSuite() (suite, ginkgo string, err error) {
	if ginkgo, err = compiled("e2e-ginkgo", upstreamModule, "github.com/onsi/ginkgo/v2/ginkgo")(); err != nil {
		return "", "", err
	}
	suite, err = compile("e2e-suite.test", upstreamModule, []string{"test", "-c"}, "./suite")
	return suite, ginkgo, err
}
