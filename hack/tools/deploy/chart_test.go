// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// chart is the Helm chart, and chartFiles are the manifests that `make deploy` copies into it.
const chart = "deploy/chart"

var chartFiles = []string{
	"base/config.yaml", "base/daemonset.yaml", "base/rbac.yaml",
	"monitoring/dashboard.json", "monitoring/prometheusrule.yaml", "monitoring/service.yaml", "monitoring/servicemonitor.yaml",
}

var buildHelm = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("make", "-s", "bin/helm")
	cmd.Dir = top
	return cmd.CombinedOutput()
})

// helm renders a chart: hack/helm describes the arguments.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if printed, err := buildHelm(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	printed, err := exec.Command(filepath.Join(top, "bin/helm"), args...).CombinedOutput()
	return string(printed), err
}

// render returns the text of the chart for a release, with arguments such as --set nodes=labeled.
func render(t *testing.T, release string, args ...string) string {
	t.Helper()
	text, err := helm(t, append([]string{release, filepath.Join(top, chart), "--namespace", "kube-system"}, args...)...)
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, text)
	}
	return text
}

// objects returns the objects of a text by kind and name. The texts in a ConfigMap count by what they contain,
// because the chart leaves out their comments.
func objects(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(object) == 0 {
			continue
		}
		key := object["kind"].(string) + " " + object["metadata"].(map[string]any)["name"].(string)
		if _, twice := all[key]; twice {
			t.Errorf("%s exists twice", key)
		}
		all[key] = object
		if data, ok := object["data"].(map[string]any); ok {
			for name, value := range data {
				data[name] = documents(t, value.(string))
			}
		}
	}
	return all
}

func documents(t *testing.T, text string) (all []any) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var value any
		if err := yaml.Unmarshal([]byte(document), &value); err != nil {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	return all
}

// hashed is the name of the ConfigMap that kustomize generates.
var hashed = regexp.MustCompile(`name: sluice-[a-z0-9]{10}\n`)

// TestChart_ConfigurationReplacesPods: a changed configuration changes the pods, so that a rolling update applies it.
func TestChart_ConfigurationReplacesPods(t *testing.T) {
	checksum := func(args ...string) string {
		return regexp.MustCompile(`checksum/config: [0-9a-f]{64}\n`).FindString(render(t, "sluice", args...))
	}
	before := checksum()
	if before == "" || checksum("--set", "podLabels.team=net") != before {
		t.Errorf("%q with other labels: %q", before, checksum("--set", "podLabels.team=net"))
	}
	for _, set := range []string{"config.clusterCIDR=10.0.0.0/8", "sluiceConfig.log.format=json", "apiServer=https://192.0.2.10:6443", "config.mode=ipvs"} {
		if after := checksum("--set", set); after == before || after == "" {
			t.Errorf("--set %s: %q, before %q", set, after, before)
		}
	}
	if after := checksum("--set", "existingConfigMap=mine"); after != "" {
		t.Errorf("a ConfigMap that the chart does not make: %q", after)
	}
}

// TestChart_EqualsKustomize: the chart renders the objects of every directory that kustomize builds.
func TestChart_EqualsKustomize(t *testing.T) {
	run(t, filepath.Join(top, "hack/deploy"), "", filepath.Join(t.TempDir(), "install.yaml")) // builds kustomize
	for _, c := range []struct {
		folders []string
		release string
		set     []string
		edit    [2]string // of what kustomize builds
	}{
		{[]string{"base"}, "sluice", nil, [2]string{}},
		{[]string{"kubeadm"}, "sluice", []string{"nodes=labeled", "existingConfigMap=kube-proxy"}, [2]string{}},
		{[]string{"kubeadm-all"}, "sluice", []string{"existingConfigMap=kube-proxy"}, [2]string{}},
		{[]string{"canary"}, "sluice-canary", []string{"nodes=labeled", "existingConfigMap=sluice-canary", "image.tag=canary"}, [2]string{}},
		{[]string{"userspace"}, "sluice", []string{"config.mode=userspace"}, [2]string{`mode: ""`, "mode: userspace"}},
		{[]string{"base", "monitoring"}, "sluice",
			[]string{"monitoring.serviceMonitor=true", "monitoring.prometheusRule=true", "monitoring.dashboard=true"}, [2]string{}},
	} {
		t.Run(strings.Join(c.folders, "+"), func(t *testing.T) {
			got, want := objects(t, render(t, c.release, sets(c.set)...)), map[string]map[string]any{}
			for _, folder := range c.folders {
				built := run(t, filepath.Join(top, "bin/kustomize"), "build", filepath.Join(top, "deploy", folder))
				built = hashed.ReplaceAllString(built, "name: sluice\n")
				maps.Copy(want, objects(t, strings.ReplaceAll(built, c.edit[0], c.edit[1])))
			}
			template := got["DaemonSet "+c.release]["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)
			delete(template["annotations"].(map[string]any), "checksum/config") // in place of the hash in the name
			compare(t, got, want)
		})
	}
}

func sets(values []string) (args []string) {
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return args
}

func compare(t *testing.T, got, want map[string]map[string]any) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(got[key], want[key]) {
			a, _ := yaml.Marshal(got[key])
			b, _ := yaml.Marshal(want[key])
			t.Errorf("%s differs; the chart renders:\n%s\nkustomize builds:\n%s", key, a, b)
		}
		delete(got, key)
	}
	for key := range got {
		t.Errorf("only the chart renders %s", key)
	}
	t.Logf("%d objects", len(want))
}

// TestChart_FilesUpToDate: the chart's files are copies of those in deploy.
func TestChart_FilesUpToDate(t *testing.T) {
	for _, name := range chartFiles {
		if read(t, filepath.Join("deploy", name)) != read(t, filepath.Join(chart, "files", filepath.Base(name))) {
			t.Errorf("deploy/chart/files/%s is not a copy of deploy/%s: run make deploy, and commit it", filepath.Base(name), name)
		}
	}
}

// TestChart_Values: each value of the chart changes the field that it describes.
func TestChart_Values(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for set, want := range map[string]string{
		"apiServer=https://192.0.2.10:6443":         "server: https://192.0.2.10:6443\n",
		"image.repository=registry.example/sluice":  "image: registry.example/sluice:latest\n",
		"image.digest=" + digest:                    "image: sluice@" + digest + "\n",
		"image.pullPolicy=Always":                   "imagePullPolicy: Always\n",
		"imagePullSecrets[0].name=registry":         "imagePullSecrets:\n      - name: registry\n",
		"config.clusterCIDR=10.0.0.0/8\\,fd00::/48": "clusterCIDR: 10.0.0.0/8,fd00::/48\n",
		"config.conntrack.maxPerCore=0":             "conntrack:\n      maxPerCore: 0\n",
		"sluiceConfig.log.format=json":              "---\n    apiVersion: sluice.dev/v1alpha1\n    kind: SluiceConfiguration\n    log:\n      format: json\n",
		"nodeSelector.pool=edge":                    "pool: edge\n",
		"priorityClassName=system-cluster-critical": "priorityClassName: system-cluster-critical\n",
		"resources.requests.memory=128Mi":           "memory: 128Mi\n",
		"podAnnotations.team=net":                   "        team: net\n",
		"podLabels.team=net":                        "team: net\n",
		"rollout.maxUnavailable=3":                  "maxUnavailable: 3\n",
		"rollout.minReadySeconds=75":                "minReadySeconds: 75\n",
		"existingConfigMap=mine":                    "name: mine\n",
		"tolerations[0].key=a,tolerations[0].effect=NoSchedule,tolerations[0].operator=Exists": "- effect: NoSchedule\n        key: a\n",
		"monitoring.dashboard=true,monitoring.labels.release=prometheus":                       "release: prometheus\n",
	} {
		if text := render(t, "sluice", "--set", set); !strings.Contains(text, want) {
			t.Errorf("--set %s: the chart renders no %q:\n%s", set, want, text)
		}
	}
}

// TestChart_RejectsInvalidValue: the error for an invalid value names the value.
func TestChart_RejectsInvalidValue(t *testing.T) {
	for set, field := range map[string]string{
		"mode=ipvs":                        "'mode'",
		"config.mode=nft":                  "/config/mode",
		"config.clusterCIDR=10.0.0.0":      "/config/clusterCIDR",
		"apiServer=192.0.2.10":             "/apiServer",
		"image.tag=a b":                    "/image/tag",
		"image.repository=http://x y":      "/image/repository",
		"image.digest=sha256:12":           "/image/digest",
		"image.pullPolicy=Sometimes":       "/image/pullPolicy",
		"image.name=x":                     "'name'",
		"nodes=all":                        "/nodes",
		"existingConfigMap=Mine":           "/existingConfigMap",
		"podLabels.a=1":                    "/podLabels/a",
		"rollout.maxUnavailable=0":         "/rollout/maxUnavailable",
		"rollout.maxUnavailable=101%":      "/rollout/maxUnavailable",
		"rollout.minReadySeconds=-1":       "/rollout/minReadySeconds",
		"monitoring.serviceMonitor=yes":    "/monitoring/serviceMonitor",
		"sluiceConfig.kind=Sluice":         "/sluiceConfig/kind",
		"resources.memory=64Mi":            "'memory'",
		"imagePullSecrets[0]=registry":     "/imagePullSecrets/0",
		"tolerations.operator=Exists":      "/tolerations",
		"priorityClassName=Not_A_Name":     "/priorityClassName",
		"nodeSelector.spot=true":           "/nodeSelector/spot",
		"podAnnotations.a=true":            "/podAnnotations/a",
		"config.kind=KubeletConfiguration": "/config/kind",
	} {
		text, err := helm(t, "sluice", filepath.Join(top, chart), "--set", set)
		if err == nil || !strings.Contains(text, field) {
			t.Errorf("--set %s: want an error that contains %s: %v\n%s", set, field, err, text)
		}
	}
}

// TestChart_RejectsUnknownLabel: a release of another name cannot run on labeled nodes, because other DaemonSets would
// run on those, too.
func TestChart_RejectsUnknownLabel(t *testing.T) {
	text, err := helm(t, "other", filepath.Join(top, chart), "--set", "nodes=labeled")
	if err == nil || !strings.Contains(text, "nodes: with labeled") {
		t.Errorf("want an error that names nodes: %v\n%s", err, text)
	}
}

// TestReleasedChart: two builds of a release's chart have its version and equal bytes.
func TestReleasedChart(t *testing.T) {
	dir := t.TempDir()
	for version, chartVersion := range map[string]string{"v1.2.3": "1.2.3", "0123abc": "0.0.0-g0123abc"} {
		var packed [2]string
		for i := range packed {
			path := filepath.Join(dir, version+strings.Repeat("x", i)+".tgz")
			run(t, filepath.Join(top, "hack/release/chart"), version, path)
			bytes, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			packed[i] = string(bytes)
		}
		if packed[0] != packed[1] {
			t.Errorf("%s: two archives differ", version)
		}
		text, err := helm(t, "sluice", filepath.Join(dir, version+".tgz"))
		if err != nil || strings.Count(text, "image: sluice:"+version+"\n") != 3 {
			t.Errorf("%s: want the image with this tag in three containers: %v\n%s", version, err, text)
		}
		shown := run(t, "tar", "-xOf", filepath.Join(dir, version+".tgz"), "sluice/Chart.yaml")
		if !strings.Contains(shown, "\nversion: "+chartVersion+"\n") {
			t.Errorf("%s: want version %s:\n%s", version, chartVersion, shown)
		}
	}
}

// TestReleasedChart_ImageDigest: the chart of a release for a registry names the digest of its image, unless values
// name another image.
func TestReleasedChart_ImageDigest(t *testing.T) {
	packed := filepath.Join(t.TempDir(), "sluice.tgz")
	digest := "sha256:" + strings.Repeat("0a", 32)
	run(t, filepath.Join(top, "hack/release/chart"), "v1.2.3", packed, "registry.example/sluice", digest)
	for set, want := range map[string]string{
		"nodes=unclaimed":                                 "registry.example/sluice:v1.2.3@" + digest,
		"image.repository=mirror/sluice":                  "mirror/sluice:v1.2.3@" + digest,
		"image.tag=mine":                                  "registry.example/sluice:mine",
		"image.digest=sha256:" + strings.Repeat("0b", 32): "registry.example/sluice@sha256:" + strings.Repeat("0b", 32),
	} {
		text, err := helm(t, "sluice", packed, "--set", set)
		if err != nil || strings.Count(text, "image: "+want+"\n") != 3 {
			t.Errorf("--set %s: want %s in three containers: %v\n%s", set, want, err, text)
		}
	}
}
