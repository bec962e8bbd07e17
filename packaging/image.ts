// Makes images of the control plane and of a node (OCI image specification 1.1) from the programs, the CA certificates and
// the files of the C library, without a daemon and without a base image. The result is one tar that `docker load` and `podman load`
// take. The same input gives the same bytes.

import { hash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { brand, defaultPlaces } from "../src/brand.ts";
import { trimSlashes } from "../src/platform/daemon-args.ts";
import { tarOf, type TarEntry } from "./tar.ts";

export type ImageOptions = { version: string; timeS: number };

export type Image = {
  name: string;
  title: string;
  /** Of user and group. */
  user: number;
  env: readonly string[];
  cmd: readonly string[];
  ports: readonly string[];
  /** Directories of data, which belong to the user. */
  volumes: readonly string[];
  /** Directories that a runtime lays over with memory: the root may be read-only. */
  temporary: readonly string[];
  /** Path in the image → program on this machine. Their libraries come along. */
  programs: Readonly<Record<string, string>>;
};

const certificates = "/etc/ssl/certs/ca-certificates.crt";
const ourProgram = `/usr/bin/${brand.executable}`;

/** The control plane. Usual machines have no user with its id. */
export function controlImage(executable: string): Image {
  return {
    name: `${brand.id}-control`,
    title: `${brand.title}: control plane`,
    user: 65532,
    env: [`${brand.envPrefix}DATA_DIR=/data`, `${brand.envPrefix}LISTEN=0.0.0.0:8420`],
    cmd: ["serve"],
    ports: ["8420/tcp"],
    volumes: ["/data"],
    temporary: ["/tmp"],
    programs: { [ourProgram]: executable },
  };
}

/** A node with its engine, for example beside another container whose network it joins. Root: it makes an interface. */
export function nodeImage(executable: string, engine: string): Image {
  const { configRoot, stateDb, socketPath, packagedEngines } = defaultPlaces("linux", {});
  return {
    name: `${brand.id}-node`,
    title: `${brand.title}: node`,
    user: 0,
    env: [],
    cmd: ["up", "--foreground"],
    ports: [],
    volumes: [trimSlashes(configRoot), dirname(stateDb)],
    temporary: ["/tmp", dirname(dirname(socketPath))],
    programs: { [ourProgram]: executable, [packagedEngines[0] ?? ""]: engine },
  };
}

/** Writes the image for this machine's processor: the C library's files are this machine's. */
export function makeImage(outfile: string, image: Image, { version, timeS }: ImageOptions): void {
  const created = new Date(timeS * 1000).toISOString();
  const layer = tarOf(filesOf(image), timeS);
  const packed = Bun.gzipSync(layer, { library: "libdeflate", level: 6 });
  const blobs = new Map<string, Uint8Array>();
  const add = (mediaType: string, content: Uint8Array) => {
    const digest = hash("sha256", content, "hex");
    blobs.set(`blobs/sha256/${digest}`, content);
    return { mediaType, digest: `sha256:${digest}`, size: content.length };
  };
  const json = (value: object) => Buffer.from(JSON.stringify(value));
  const layerBlob = add("application/vnd.oci.image.layer.v1.tar+gzip", packed);
  const config = add(
    "application/vnd.oci.image.config.v1+json",
    json({
      created,
      ...platform(),
      config: {
        User: `${image.user}:${image.user}`,
        Env: [...image.env, `SSL_CERT_FILE=${certificates}`],
        Entrypoint: [ourProgram],
        Cmd: image.cmd,
        ExposedPorts: Object.fromEntries(image.ports.map((port) => [port, {}])),
        Volumes: Object.fromEntries(image.volumes.map((path) => [path, {}])),
        StopSignal: "SIGTERM",
        Labels: {
          "org.opencontainers.image.title": image.title,
          "org.opencontainers.image.version": version,
        },
      },
      rootfs: { type: "layers", diff_ids: [`sha256:${hash("sha256", layer, "hex")}`] },
      history: [{ created, created_by: "build.ts --image" }],
    }),
  );
  const manifest = add(
    "application/vnd.oci.image.manifest.v1+json",
    json({
      schemaVersion: 2,
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      config,
      layers: [layerBlob],
    }),
  );
  const tag = `${image.name}:${version}`;
  const annotations = { "io.containerd.image.name": tag, "org.opencontainers.image.ref.name": version };
  const nameOf = ({ digest }: { digest: string }) => `blobs/sha256/${digest.slice("sha256:".length)}`;
  const files: TarEntry[] = [
    ["oci-layout", json({ imageLayoutVersion: "1.0.0" })],
    [
      "index.json",
      json({ schemaVersion: 2, manifests: [{ ...manifest, platform: platform(), annotations }] }),
    ],
    // For versions of Docker before 25.
    [
      "manifest.json",
      json([
        { Config: nameOf(config), RepoTags: [tag, `${image.name}:latest`], Layers: [nameOf(layerBlob)] },
      ]),
    ],
    ...blobs,
  ].map(([path, content]) => ({ path, content, mode: 0o644 }) as TarEntry);
  const directories = ["blobs", "blobs/sha256"].map((path) => ({ path, mode: 0o755 }));
  writeFileSync(outfile, tarOf([...directories, ...files], timeS));
}

function platform() {
  return { os: "linux", architecture: process.arch === "x64" ? "amd64" : process.arch };
}

function filesOf({ user, volumes, temporary, programs }: Image): TarEntry[] {
  const text = (path: string, content: string) => ({ path, content: Buffer.from(content), mode: 0o644 });
  const libraries = new Set(Object.values(programs).flatMap(librariesOf));
  const copies = { ...programs, ...Object.fromEntries([...libraries].sort().map((path) => [path, path])) };
  const files: TarEntry[] = [
    { path: certificates.slice(1), content: readFileSync(certificates), mode: 0o644 },
    text("etc/passwd", `${user === 0 ? "root" : brand.id}:x:${user}:${user}::${volumes[0]}:/\n`),
    text("etc/group", `${user === 0 ? "root" : brand.id}:x:${user}:\n`),
    text("etc/nsswitch.conf", "hosts: files dns\n"),
    ...Object.entries(copies).map(([path, from]) => ({
      path: path.slice(1),
      content: readFileSync(from),
      mode: 0o755,
    })),
  ];
  const own = [
    ...volumes.map((path) => ({ path: path.slice(1), mode: user === 0 ? 0o755 : 0o700, owner: user })),
    ...temporary.map((path) => ({ path: path.slice(1), mode: path === "/tmp" ? 0o1777 : 0o755 })),
  ];
  const parents = new Set([...files, ...own].flatMap(({ path }) => parentsOf(path)));
  return [...[...parents].sort().map((path) => ({ path, mode: 0o755 })), ...own, ...files];
}

function parentsOf(path: string): string[] {
  const words = path.split("/").slice(0, -1);
  return words.map((_, at) => words.slice(0, at + 1).join("/"));
}

/** The dynamic linker and the libraries, at the paths where the executable looks for them. */
function librariesOf(executable: string): string[] {
  const listed = Bun.spawnSync(["ldd", executable], { stdin: "ignore", stderr: "pipe" });
  const paths = [...listed.stdout.toString().matchAll(/(?:=> )?(\/\S+) \(0x/g)].flatMap(
    ([, path]) => path ?? [],
  );
  if (/not a dynamic executable|statically linked/.test(listed.stdout.toString() + listed.stderr.toString()))
    return [];
  if (listed.exitCode !== 0 || paths.length === 0)
    throw new Error(`ldd does not list the libraries of ${executable}: ${listed.stderr.toString()}`);
  return paths.sort();
}
