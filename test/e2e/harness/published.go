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
)

// kubernetesModule is where Kubernetes' own programs come from.
const kubernetesModule = "k8s.io/kubernetes"

// publishedPrograms are built from that module as they are.
var publishedPrograms = []string{"kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl", "kubelet"}

// KubernetesVersion returns the release of Kubernetes whose programs the tests run.
var KubernetesVersion = sync.OnceValues(func() (string, error) {
	printed, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", kubernetesModule).Output()
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
// packages, and returns their folder. The first time on a machine takes minutes.
var published = sync.OnceValues(func() (string, error) {
	top, err := repository()
	if err != nil {
		return "", err
	}
	flags, err := versionFlags()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(top, "bin", "kubernetes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	args := append([]string{"build", "-o", dir}, flags...)
	for _, program := range publishedPrograms {
		args = append(args, kubernetesModule+"/cmd/"+program)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(top, "test", "e2e")
	if printed, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("in %s: go %s: %w\n%s", cmd.Dir, strings.Join(args, " "), err, printed)
	}
	return dir, nil
})

// nodeBinary and podBinary build the node and what runs in its pods once per test process.
var nodeBinary = sync.OnceValues(func() (string, error) {
	return build("", "e2e-node", "test/e2e", "./node")
})

var podBinary = sync.OnceValues(func() (string, error) {
	return build("", "e2e-pod", "test/e2e", "./pod", "-tags", "netgo,osusergo", "-ldflags", "-s -w -extldflags=-static")
})

// BuildForNodes builds all programs of a [NodeCluster] beforehand.
func BuildForNodes() error {
	var errs []error
	for _, one := range []func() (string, error){published, apiServerBinary, kubeProxyBinary, nodeBinary, podBinary} {
		_, err := one()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// PodArchive writes an OCI archive of the program of test/e2e/pod to a file.
func PodArchive(image, file string) error {
	binary, err := podBinary()
	if err != nil {
		return err
	}
	return archive(image, file, "-binary", runtime.GOARCH+"="+binary)
}

// KubeProxyArchive writes an OCI archive of the real kube-proxy to a file, with the name that
// kubeadm gives it. It has the Debian packages that `make image` has left.
func KubeProxyArchive(file string) error {
	binary, err := kubeProxyBinary()
	if err != nil {
		return err
	}
	version, err := KubernetesVersion()
	if err != nil {
		return err
	}
	top, err := repository()
	if err != nil {
		return err
	}
	root := filepath.Join(top, "bin", "image", "root-"+runtime.GOARCH)
	return archive("registry.k8s.io/kube-proxy:"+version, file, "-binary", runtime.GOARCH+"="+binary, "-root", runtime.GOARCH+"="+root)
}

// archive makes an image with the tool of `make image`, which has the program at
// /usr/local/bin/kube-proxy, whatever it is.
func archive(image, file string, flags ...string) error {
	top, err := repository()
	if err != nil {
		return err
	}
	tool := filepath.Join(top, "bin", "oci-image")
	build := exec.Command("go", "build", "-o", tool, "./image")
	build.Dir = filepath.Join(top, "hack", "tools")
	for _, cmd := range []*exec.Cmd{build, exec.Command(tool, append(flags, "-out", file, "-name", image)...)} {
		if printed, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, printed)
		}
	}
	return nil
}
