// Makes an image of the control plane (OCI image specification 1.1) from the executable, the CA certificates and the files
// of the C library, without a daemon and without a base image. The result is one tar that `docker load` and `podman load`
// take. The same input gives the same bytes.

import { hash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { brand } from "../src/brand.ts";
import { tarOf, type TarEntry } from "./tar.ts";

export type ImageOptions = { version: string; timeS: number };

/** The user of the image: nobody has this id on usual machines. */
export const imageUser = 65532;
export const imageName = `${brand.id}-control`;
const data = "/data";
const certificates = "/etc/ssl/certs/ca-certificates.crt";

/** Writes the image for this machine's processor: the C library's files are this machine's. */
export function makeImage(outfile: string, executable: string, { version, timeS }: ImageOptions): void {
  const created = new Date(timeS * 1000).toISOString();
  const layer = tarOf(filesOf(executable), timeS);
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
        User: `${imageUser}:${imageUser}`,
        Env: [
          `${brand.envPrefix}DATA_DIR=${data}`,
          `${brand.envPrefix}LISTEN=0.0.0.0:8420`,
          `SSL_CERT_FILE=${certificates}`,
        ],
        Entrypoint: [`/usr/bin/${brand.executable}`],
        Cmd: ["serve"],
        ExposedPorts: { "8420/tcp": {} },
        Volumes: { [data]: {} },
        StopSignal: "SIGTERM",
        Labels: {
          "org.opencontainers.image.title": `${brand.title}: control plane`,
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
  const tag = `${imageName}:${version}`;
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
      json([{ Config: nameOf(config), RepoTags: [tag, `${imageName}:latest`], Layers: [nameOf(layerBlob)] }]),
    ],
    ...blobs,
  ].map(([path, content]) => ({ path, content, mode: 0o644 }) as TarEntry);
  const directories = ["blobs", "blobs/sha256"].map((path) => ({ path, mode: 0o755 }));
  writeFileSync(outfile, tarOf([...directories, ...files], timeS));
}

function platform() {
  return { os: "linux", architecture: process.arch === "x64" ? "amd64" : process.arch };
}

function filesOf(executable: string): TarEntry[] {
  const user = `${imageUser}:${imageUser}`;
  const files: TarEntry[] = [
    { path: `usr/bin/${brand.executable}`, content: readFileSync(executable), mode: 0o755 },
    { path: certificates.slice(1), content: readFileSync(certificates), mode: 0o644 },
    { path: "etc/passwd", content: Buffer.from(`${brand.id}:x:${user}::${data}:/\n`), mode: 0o644 },
    { path: "etc/group", content: Buffer.from(`${brand.id}:x:${imageUser}:\n`), mode: 0o644 },
    { path: "etc/nsswitch.conf", content: Buffer.from("hosts: files dns\n"), mode: 0o644 },
    ...librariesOf(executable).map((path) => ({
      path: path.slice(1),
      content: readFileSync(path),
      mode: 0o755,
    })),
  ];
  const parents = new Set(files.flatMap(({ path }) => parentsOf(path)));
  return [
    ...[...parents].sort().map((path) => ({ path, mode: 0o755 })),
    { path: data.slice(1), mode: 0o700, owner: imageUser },
    { path: "tmp", mode: 0o1777 },
    ...files,
  ];
}

function parentsOf(path: string): string[] {
  const words = path.split("/").slice(0, -1);
  return words.map((_, at) => words.slice(0, at + 1).join("/"));
}

/** The dynamic linker and the libraries, at the paths where the executable looks for them. */
function librariesOf(executable: string): string[] {
  const listed = Bun.spawnSync(["ldd", executable], { stdin: "ignore" });
  const paths = [...listed.stdout.toString().matchAll(/(?:=> )?(\/\S+) \(0x/g)].flatMap(
    ([, path]) => path ?? [],
  );
  if (listed.exitCode !== 0 || paths.length === 0)
    throw new Error(`ldd does not list the libraries of ${executable}: ${listed.stderr.toString()}`);
  return paths.sort();
}
