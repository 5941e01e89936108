// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// kubernetesModule is where Kubernetes' own programs come from.
const kubernetesModule = "k8s.io/kubernetes"

// publishedPrograms are built from that module as they are.
var publishedPrograms = []string{"kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl", "kubelet"}

// KubernetesVersion returns the release of Kubernetes whose programs the tests run.
var KubernetesVersion = sync.OnceValues(func() (string, error) {
	printed, err := exec.Command("go", "-C", filepath.Join(testenv.Root(), e2eModule), "list", "-m", "-f", "{{.Version}}", kubernetesModule).Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", kubernetesModule, err)
	}
	return strings.TrimSpace(string(printed)), nil
})

// versionFlags tell Kubernetes' programs their version, which kubeadm compares. They affect the
// linker only.
func versionFlags() ([]string, error) {
	version, err := KubernetesVersion()
	if err != nil {
		return nil, err
	}
	numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const at = "-X k8s.io/component-base/version."
	return []string{"-ldflags", "-s -w " + at + "gitVersion=" + version + " " +
		at + "gitMajor=" + numbers[0] + " " + at + "gitMinor=" + numbers[1]}, nil
}

// published builds those programs once per test process, by one command because they share most
// packages, and returns their directory. The first time on a machine takes minutes.
var published = sync.OnceValues(func() (string, error) {
	flags, err := versionFlags()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(testenv.Root(), "bin", "kubernetes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args := append([]string{"build", "-o", dir}, flags...)
	for _, program := range publishedPrograms {
		args = append(args, kubernetesModule+"/cmd/"+program)
	}
	return dir, goTool(e2eModule, args...)
})

// BuildForNodes builds the programs of a [NodeCluster] beforehand.
func BuildForNodes() error {
	var errs []error
	for _, one := range []func() (string, error){published, nodeBinary, podBinary} {
		_, err := one()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// MakeImage calls `make image` for this machine's architecture with more variables. It writes the
// archives sluice-VERSION.tar and sluice-VERSION-static.tar, the second with the program alone.
func MakeImage(version, out string, variables ...string) error {
	cmd := exec.Command("make", append([]string{"image", "ARCH=" + runtime.GOARCH, "VERSION=" + version, "OUT=" + out}, variables...)...)
	cmd.Dir = testenv.Root()
	if printed, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, printed)
	}
	return nil
}

// MakePodImage writes an archive with the program of test/e2e/pod and nothing else, and returns its
// file and the name of the image. In it, the program is at /usr/local/bin/sluice.
func MakePodImage(out string) (archive, image string, err error) {
	binary, err := podBinary()
	if err != nil {
		return "", "", err
	}
	return makeStaticImage(out, "pod", binary)
}

// makeStaticImage writes an archive with a program and nothing else, and returns its file and the name
// of the image.
func makeStaticImage(out, name, binary string) (archive, image string, err error) {
	built, err := os.MkdirTemp("", "e2e-image-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(built) // a symlink in the directory for temporary files
	if err := os.Symlink(binary, filepath.Join(built, "sluice-"+runtime.GOARCH)); err != nil {
		return "", "", err
	}
	image = "sluice.test/" + name
	err = MakeImage(name, out, "IMAGE="+image, "BUILT="+built)
	return filepath.Join(out, "sluice-"+name+"-static.tar"), image + ":" + name + "-static", err
}

// MakeKubeProxyImage writes an archive with the real kube-proxy, under the name that kubeadm gives
// it, and returns its file. Like the published image, it has iptables and nft: kube-proxy removes
// with them what the proxy before it has left in another mode.
func MakeKubeProxyImage(t testing.TB, out string) (archive string, err error) {
	version, err := KubernetesVersion()
	if err != nil {
		return "", err
	}
	archive = filepath.Join(out, "kube-proxy.tar")
	image := debianImage{name: "registry.k8s.io/kube-proxy:" + version, binary: kubeProxyProgram(t), command: "proxy",
		packages: []string{"iptables", "kmod", "nftables"}}
	return archive, image.make(archive)
}

// debianImage is an image with Debian packages and a program at /usr/local/bin/sluice.
type debianImage struct {
	name, binary string
	command      string // the default argument of the program
	packages     []string
	links        map[string]string // symbolic links by their path, without a leading slash
	files        []string          // further files, for the root directory
}

// make writes the archive with the image, and one with the program alone.
func (i debianImage) make(archive string) error {
	root := filepath.Join("bin", "image", "root-"+strings.TrimSuffix(filepath.Base(archive), ".tar")+"-"+runtime.GOARCH)
	do := func(words ...string) error {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = testenv.Root()
		if printed, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, printed)
		}
		return nil
	}
	errs := []error{do(append([]string{"hack/image/debian-root", runtime.GOARCH, root}, i.packages...)...)}
	for link, target := range i.links {
		errs = append(errs, do("ln", "-sfn", target, filepath.Join(root, link)))
	}
	for _, file := range i.files {
		errs = append(errs, do("install", file, root))
	}
	return errors.Join(append(errs,
		do("install", "-D", "LICENSE", filepath.Join(root+"-licenses", "LICENSE")),
		do("go", "-C", "hack/tools", "build", "-o", "../../bin/oci-image", "./image"),
		do("bin/oci-image", "-out", archive, "-static", strings.TrimSuffix(archive, ".tar")+"-static.tar", "-name", i.name,
			"-command", i.command, "-licenses", root+"-licenses", "-binary", runtime.GOARCH+"="+i.binary, "-root", runtime.GOARCH+"="+root))...)
}
