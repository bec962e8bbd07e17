// The two commands of the README on a Debian that has nothing but Node: built, installed, shown, in under three minutes.

import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { installMissing, runSync } from "../support/debian.ts";
import { debianTree, overlayTree } from "../support/debian-tree.ts";

/** What this machine needs to reach the network; another machine would have its own. */
const own = /^(https?_proxy|no_proxy|ssl_cert_file|node_extra_ca_certs|npm_config_registry)$/i;
const files = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"];

/** Runs a script in the tree, with mounts and processes of its own, so that all of it is gone when the script is. */
async function inside(root: string, script: string): Promise<number> {
  const enter = `
    for each in sys dev; do mount --rbind /$each ${root}/$each; done
    mount -t proc proc ${root}/proc
    exec chroot ${root} sh -ec '${script}'`;
  const child = Bun.spawn(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", enter], {
    env: {
      ...Object.fromEntries(Object.entries(process.env).filter(([name]) => own.test(name))),
      PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      HOME: "/root",
    },
    stdio: ["ignore", "inherit", "inherit"],
  });
  return child.exited;
}

test("sh install --from-source && agent demo --yes", async () => {
  expect(installMissing(["/usr/bin/mmdebstrap", "/usr/bin/git"])).toBeUndefined();
  using tree = overlayTree(debianTree("bare", ["ca-certificates"]));
  const { root } = tree;
  for (const path of files) writeFileSync(join(root, path), readFileSync(path));
  const checkout = `file://${join(import.meta.dir, "../..")}`;
  runSync(["git", "clone", "--quiet", "--depth=1", checkout, join(root, "src")]);
  const node =
    "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends";
  expect(await inside(root, `${node} nodejs npm >/dev/null`)).toBe(0);
  const begin = performance.now();
  expect(await inside(root, "cd /src && sh install --from-source && agent demo --yes")).toBe(0);
  const seconds = (performance.now() - begin) / 1000;
  process.stderr.write(`from a clone to the end of the demo: ${seconds.toFixed(0)} s\n`);
  expect(seconds).toBeLessThan(180);
}, 1_200_000);
