// What `bun build.ts --publish` adds to a release: the list of components (SBOM), the notes, and checks of what was made,
// with the real minisign and sha256sum, and in a bare tree. Nothing is uploaded.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import * as v from "valibot";
import packageJson from "../package.json" with { type: "json" };
import { brand } from "../src/brand.ts";
import { Manifest } from "../src/release/manifest.ts";
import { compareVersions } from "../src/protocol/updates/version.ts";
import { installMissing, runSync } from "../test/support/debian.ts";
import { cannotMakeTrees, debianTree, overlayTree } from "../test/support/debian-tree.ts";

const root = join(import.meta.dir, "..");
export const sbomName = "sbom.cdx.json";

/** Throws before the first build. A published release can be built again from its commit, and says what is new. */
export function requirePublishable(version: string, { allowDirty }: { allowDirty: boolean }): void {
  notesOf(readFileSync(join(root, "CHANGELOG.md"), "utf8"), version);
  if (!allowDirty && runSync(["git", "status", "--porcelain"], { cwd: root }).trim() !== "")
    throw new Error(
      "The checkout has changes that are not committed: commit them, or add --allow-dirty for a try",
    );
  const missing = cannotMakeTrees() ?? installMissing(["/usr/bin/minisign", "/usr/bin/zstd"]);
  if (missing !== undefined) throw new Error(`A release is checked in a bare Debian tree: ${missing}`);
}

/** The section of the version in the changelog. */
export function notesOf(changelog: string, version: string): string {
  const [, ...sections] = changelog.split(/^## /m);
  const found = sections.find((each) => /^\[?([\d.]+)/.exec(each)?.[1] === version);
  const text = found?.slice(found.indexOf("\n")).trim() ?? "";
  if (text === "") throw new Error(`CHANGELOG.md has no section "## ${version}", or an empty one`);
  return text;
}

const Locked = v.looseTuple([v.string()]);
const Lock = v.object({
  workspaces: v.object({ "": v.object({ dependencies: v.record(v.string(), v.string()) }) }),
  packages: v.record(v.string(), v.pipe(v.array(v.unknown()), Locked)),
});
const Needs = v.object({ dependencies: v.optional(v.record(v.string(), v.string()), {}) });

/** What executables are made of, as CycloneDX 1.6: the runtime, and the packages of bun.lock that are not for development. */
export function sbomOf(lock: string, version: string, timeS: number): string {
  const { workspaces, packages } = v.parse(v.pipe(v.unknown(), Lock), Bun.JSONC.parse(lock));
  const seen = new Set<string>();
  const found = new Map<string, object>();
  const waiting = Object.keys(workspaces[""].dependencies).map((name) => ({ name, of: "" }));
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { name, of } = next;
    // A package in another version than the usual one is listed below the one that needs it.
    const key = `${of}/${name}` in packages ? `${of}/${name}` : name;
    const entry = packages[key];
    if (entry === undefined || seen.has(key)) continue;
    seen.add(key);
    const release = entry[0].slice(entry[0].lastIndexOf("@") + 1);
    const [, , needs, integrity] = entry;
    const hash =
      typeof integrity === "string" ? Buffer.from(integrity.replace(/^sha512-/, ""), "base64") : undefined;
    const license = licenseOf(name);
    found.set(entry[0], {
      type: "library",
      name,
      version: release,
      purl: `pkg:npm/${name.replace("@", "%40")}@${release}`,
      ...(hash === undefined ? {} : { hashes: [{ alg: "SHA-512", content: hash.toString("hex") }] }),
      ...(license === undefined ? {} : { licenses: [{ expression: license }] }),
    });
    const { dependencies } = v.parse(Needs, needs ?? {});
    waiting.push(...Object.keys(dependencies).map((each) => ({ name: each, of: key })));
  }
  const runtime = { type: "platform", name: "bun", version: packageJson.packageManager.replace("bun@", "") };
  const components = [
    runtime,
    ...[...found].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each),
  ];
  const timestamp = new Date(timeS * 1000).toISOString();
  const component = {
    type: "application",
    name: brand.id,
    version,
    licenses: [{ expression: packageJson.license }],
  };
  const bom = {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: { timestamp, component },
    components,
  };
  return `${JSON.stringify(bom, null, 2)}\n`;
}

function licenseOf(name: string): string | undefined {
  const path = join(root, "node_modules", name, "package.json");
  const License = v.object({ license: v.string() });
  const parsed = v.safeParse(License, existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : undefined);
  return parsed.success ? parsed.output.license : undefined;
}

/** `former`: directory of the release before this one. `isQuick`: without the commands of the README, which take minutes. */
type Published = {
  outdir: string;
  version: string;
  publicKey: string;
  former: string | undefined;
  isQuick: boolean;
};

/** Writes NOTES.md, then checks the directory as those who download it would. Prints each check; throws at the first that fails. */
export function finishPublication({ outdir, version, publicKey, former, isQuick }: Published): void {
  const notes = notesOf(readFileSync(join(root, "CHANGELOG.md"), "utf8"), version);
  writeFileSync(join(outdir, "NOTES.md"), `${notes}\n\n${howToVerify(publicKey)}`);
  const checks: [string, () => void][] = [
    ["minisign accepts the list of programs", () => minisign(outdir, "manifest.json", publicKey)],
    ["minisign accepts SHA256SUMS", () => minisign(outdir, "SHA256SUMS", publicKey)],
    [
      "SHA256SUMS matches",
      () => void runSync(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], { cwd: outdir }),
    ],
    ["a bare Debian installs it by its script", () => installInTree(outdir, version)],
  ];
  if (former !== undefined)
    checks.push([
      `an installed ${readManifestAt(former).version} updates to it`,
      () => updateInTree(outdir, version, former),
    ]);
  if (!isQuick) checks.push(["the commands of the README work in bare trees", runReadme]);
  for (const [what, check] of checks) {
    check();
    process.stdout.write(`checked: ${what}\n`);
  }
  if (former === undefined) process.stdout.write("not checked: an update, without --former DIR\n");
}

/** The tests that type them: from a checkout, and the two lines from a control plane. */
function runReadme(): void {
  const files = ["test/soak/fresh-debian.test.ts", "test/e2e/two-lines.test.ts"];
  runSync([process.execPath, "test", "--timeout=600000", ...files], { cwd: root });
}

const howToVerify = (publicKey: string) => `## Verify

\`\`\`sh
minisign -V -P ${publicKey} -m SHA256SUMS
sha256sum -c --ignore-missing SHA256SUMS
\`\`\`
`;

function minisign(directory: string, name: string, publicKey: string): void {
  runSync(["minisign", "-V", "-q", "-P", publicKey, "-m", join(directory, name)]);
}

const readManifestAt = (directory: string) =>
  v.parse(
    v.pipe(v.string(), v.parseJson(), Manifest),
    readFileSync(join(directory, "manifest.json"), "utf8"),
  );

/** Without a network, as on a machine that has nothing but what Debian requires. */
function inBareTree(directories: Readonly<Record<string, string>>, script: string): string {
  using tree = overlayTree(debianTree("bare", ["apt"]));
  const binds = Object.entries(directories).map(([name, path]) => {
    mkdirSync(join(tree.root, name));
    return `mount --bind '${resolve(path)}' '${join(tree.root, name)}'`;
  });
  const enter = [
    `mount -t proc proc '${tree.root}/proc'`,
    ...binds,
    `exec chroot '${tree.root}' /bin/sh -euc "$1"`,
  ].join(" && ");
  return runSync(["unshare", "--mount", "--net", "/bin/sh", "-euc", enter, "sh", script]);
}

const installed = "agent version --no-check --json";

function installInTree(outdir: string, version: string): void {
  const said = inBareTree(
    { release: outdir },
    `sh /release/install --release-url /release && cat /usr/local/lib/${brand.id}/release/manifest.json >/dev/null && ${installed}`,
  );
  requireVersion(said, version);
}

function updateInTree(outdir: string, version: string, former: string): void {
  const before = readManifestAt(former);
  if (readManifestAt(outdir).sequence <= before.sequence || compareVersions(version, before.version) <= 0)
    throw new Error(
      `${former} is ${before.version}, number ${before.sequence}: a release needs a higher version and number`,
    );
  const script =
    `sh /former/install --release-url /former --version ${before.version} && ` +
    `agent self-update --release-url /release >/dev/null && ${installed}`;
  requireVersion(inBareTree({ release: outdir, former }, script), version);
}

function requireVersion(said: string, version: string): void {
  const Report = v.pipe(v.string(), v.parseJson(), v.object({ version: v.string() }));
  const found = v.parse(Report, said.trim().split("\n").at(-1)).version;
  if (found !== version) throw new Error(`The installed program is ${found}, not ${version}`);
}
