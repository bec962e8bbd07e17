// The repositories of a release, handed out by a control plane: real apt in bare trees of two releases of Debian, real dnf
// in a tree. What was tampered with is refused.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { hostTarget } from "../../build.ts";
import { makePackages } from "../../packaging/packages.ts";
import { makeRepositories } from "../../packaging/repositories.ts";
import { buildAgent, startControlPlane, type ControlPlane } from "../support/agent.ts";
import { inCi, installMissing, runSync } from "../support/debian.ts";
import { cannotMakeTrees, debianTree, overlayTree } from "../support/debian-tree.ts";
import { goProgram } from "../support/go-programs.ts";
import { buildVersion } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const missing = cannotMakeTrees() ?? installMissing(["/usr/bin/gpg", "/usr/bin/createrepo_c"]);
if (missing !== undefined && inCi) throw new Error(missing);
const arch = process.arch === "x64" ? "amd64" : "arm64";
const timeS = 1_790_000_000;

/** A key as publishers have it. */
function makeKey(file: string): string {
  using home = temporaryDirectory();
  const gpg = ["/usr/bin/gpg", "--homedir", home.path, "--batch", "--quiet", "--passphrase", ""];
  runSync([...gpg, "--quick-generate-key", "Publisher <publisher@example.org>", "ed25519", "sign", "never"]);
  runSync([...gpg, "--armor", "--output", file, "--export-secret-keys"]);
  runSync(["/usr/bin/gpgconf", "--homedir", home.path, "--kill", "all"]);
  return file;
}

describe.skipIf(missing !== undefined)("repositories", () => {
  const work = temporaryDirectory();
  const at = (...names: string[]) => join(work.path, ...names);
  let plane: ControlPlane;
  let packages: string[];

  beforeAll(async () => {
    const executable = buildVersion(work.path, "0.2.0");
    packages = await makePackages(at("release"), executable, hostTarget(), {
      version: "0.2.0",
      timeS,
      fast: true,
    });
    makeRepositories(at("release"), packages, timeS, { keyFile: makeKey(at("key")) });
    buildAgent();
    plane = await startControlPlane(at("server"), ["--releases", at("release")]);
  }, 600_000);
  afterAll(async () => {
    await plane.stop();
    work[Symbol.dispose]();
  });

  /** Runs the script in the tree, with processes and devices, in the network of this machine. */
  function inTree(tree: string, script: string): { status: number; output: string } {
    const enter =
      'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"; exec /usr/sbin/chroot "$1" /bin/sh -ec "$2"';
    const { exitCode, stdout, stderr } = Bun.spawnSync(
      ["/usr/bin/unshare", "--mount", "/bin/sh", "-ec", enter, "sh", tree, script],
      {
        env: {
          HOME: "/root",
          PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
          LC_ALL: "C",
          DEBIAN_FRONTEND: "noninteractive",
        },
      },
    );
    return { status: exitCode, output: stdout.toString() + stderr.toString() };
  }
  const must = (tree: string, script: string) => {
    const { status, output } = inTree(tree, script);
    expect({ script, status, output }).toMatchObject({ status: 0 });
    return output;
  };
  /** The file with another content, until the end of the block. */
  const changed = (name: string, change: (content: Buffer) => Buffer | string) => {
    const path = at("release", name);
    const content = readFileSync(path);
    // In place: a package is in its directory under two names.
    writeFileSync(path, change(Buffer.from(content)));
    return { [Symbol.dispose]: () => writeFileSync(path, content) };
  };
  const flipped = (content: Buffer) => {
    const middle = content.length >> 1;
    content[middle] = (content[middle] ?? 0) ^ 1;
    return content;
  };
  const publicKey = () => readFileSync(at("release/apt/overlay-agent.asc"));

  for (const release of ["bookworm", "trixie"])
    test(`apt of ${release} installs, from the control plane, what the key has signed, and nothing else`, () => {
      using tree = overlayTree(debianTree("bare", ["apt"], release));
      mkdirSync(join(tree.root, "etc/apt/keyrings"), { recursive: true });
      writeFileSync(join(tree.root, "etc/apt/keyrings/overlay-agent.asc"), publicKey());
      const source = `deb [signed-by=/etc/apt/keyrings/overlay-agent.asc] ${plane.url}/releases/apt/ ./\n`;
      runSync(["sh", "-c", `rm -f ${tree.root}/etc/apt/sources.list.d/*`]);
      writeFileSync(join(tree.root, "etc/apt/sources.list"), source);
      const update = "rm -rf /var/lib/apt/lists/*; apt-get -o APT::Sandbox::User=root update 2>&1";
      const install =
        "apt-get -q -y -o APT::Sandbox::User=root install --no-install-recommends overlay-agent 2>&1";
      const changes: [string, (content: Buffer) => Buffer | string, RegExp][] = [
        [
          "apt/InRelease",
          (text) => text.toString().replace("Suite: stable", "Suite: other"),
          /BADSIG|not signed|[Ii]nvalid/,
        ],
        [
          "apt/InRelease",
          (text) => text.toString().replace(/-----BEGIN PGP SIG[^]*/, ""),
          /not signed|[Cc]learsigned|NOSPLIT/,
        ],
        ["apt/Packages.gz", flipped, /[Hh]ash|[Ss]um|unexpected size|gzip/],
      ];
      for (const [name, change, why] of changes) {
        using _ = changed(name, change);
        const { output } = inTree(tree.root, `${update}; ${install}`);
        expect([name, output]).toEqual([name, expect.stringMatching(why)]);
        expect(inTree(tree.root, "test ! -e /usr/bin/agent").status).toBe(0);
      }
      must(tree.root, update);
      {
        using _ = changed(`apt/overlay-agent_0.2.0_${arch}.deb`, flipped);
        const { status, output } = inTree(tree.root, install);
        expect([status, output]).toEqual([100, expect.stringMatching(/Hash Sum mismatch/)]);
      }
      const begin = performance.now();
      const said = must(tree.root, `${update} && ${install}`);
      const megabytes = /Get:\d+ \S+ \S+ *\S* overlay-agent \S+ \[([^\]]+)\]/.exec(said)?.[1];
      process.stdout.write(
        `apt of ${release}: ${((performance.now() - begin) / 1000).toFixed(1)} s, ${megabytes}\n`,
      );
      expect(must(tree.root, "agent version --no-check")).toContain("agent 0.2.0");
      // Of another publisher.
      const other = temporaryDirectory();
      makeRepositories(at("release"), packages, timeS, { keyFile: makeKey(join(other.path, "key")) });
      try {
        expect(inTree(tree.root, update).output).toMatch(/NO_PUBKEY|[Mm]issing key|not signed/);
      } finally {
        makeRepositories(at("release"), packages, timeS, { keyFile: at("key") });
        other[Symbol.dispose]();
      }
    }, 300_000);

  test("dnf installs, from the control plane, what the key has signed, and nothing else", () => {
    using tree = overlayTree(debianTree("dnf", ["dnf", "rpm", "createrepo-c"]));
    // Debian's C library is in no package of rpm.
    mkdirSync(at("stub"));
    const stub = {
      name: "glibc",
      arch,
      platform: "linux",
      version: "2.36.0",
      maintainer: "Tests <tests@example.org>",
      description: "Stands for the system's",
      provides: ["/bin/sh"],
    };
    writeFileSync(at("stub.json"), JSON.stringify(stub));
    runSync([
      goProgram("nfpm"),
      "package",
      "--config",
      at("stub.json"),
      "--packager",
      "rpm",
      "--target",
      at("stub/glibc.rpm"),
    ]);
    runSync(["/usr/bin/createrepo_c", "--quiet", at("stub")]);
    runSync(["cp", "-r", at("stub"), join(tree.root, "srv/stub")]);
    mkdirSync(join(tree.root, "etc/yum.repos.d"), { recursive: true });
    writeFileSync(
      join(tree.root, "etc/yum.repos.d/stub.repo"),
      "[stub]\nname=stub\nbaseurl=file:///srv/stub\ngpgcheck=0\n",
    );
    writeFileSync(join(tree.root, "etc/yum.repos.d/overlay-agent.repo"), repoFile(plane.url));
    const dnf = "dnf -y --releasever=1 --setopt=install_weak_deps=False --refresh";
    const install = `${dnf} install overlay-agent 2>&1`;
    const rpm = readdirSync(at("release/rpm")).find((name) => name.endsWith(".rpm")) ?? "";
    const changes: [string, (content: Buffer) => Buffer | string, RegExp][] = [
      [
        "rpm/repodata/repomd.xml",
        (text) => text.toString().replace("<revision>", "<revision>1"),
        /GPG|signature/i,
      ],
      ["rpm/repodata/repomd.xml.asc", () => "", /GPG|signature|Cannot download|404/i],
      [`rpm/${rpm}`, flipped, /checksum|Failed|Error/i],
    ];
    for (const [name, change, why] of changes) {
      using _ = changed(name, change);
      const { status, output } = inTree(tree.root, `rm -rf /var/cache/dnf; ${install}`);
      expect([name, status, output]).toEqual([name, 1, expect.stringMatching(why)]);
      expect(inTree(tree.root, "test ! -e /usr/bin/agent").status).toBe(0);
    }
    const begin = performance.now();
    must(tree.root, `rm -rf /var/cache/dnf; ${install}`);
    process.stdout.write(`dnf: ${((performance.now() - begin) / 1000).toFixed(1)} s\n`);
    expect(must(tree.root, "agent version --no-check && rpm -q overlay-agent")).toContain(
      "overlay-agent-0.2.0-1",
    );
  }, 300_000);
});

/** As in docs/production.md. */
const repoFile = (url: string) => `[overlay-agent]
name=Overlay Agent
baseurl=${url}/releases/rpm/
repo_gpgcheck=1
gpgcheck=0
gpgkey=${url}/releases/rpm/overlay-agent.asc
`;
