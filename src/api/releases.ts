// The release that this control plane hands out, and how a new machine gets it.

import * as v from "valibot";
import { endpoint } from "./endpoint.ts";

/** How a new machine gets the program from this control plane. */
export const Installer = v.object({
  /** The line to paste on a new machine, as root. Null: nothing is handed out. */
  command: v.nullable(v.string()),
  version: v.nullable(v.string()),
  /** The systems that are there, as `bun-linux-x64`. */
  targets: v.array(v.string()),
  /** Why nothing is handed out, and what to do. */
  reason: v.nullable(v.string()),
});
export type Installer = v.InferOutput<typeof Installer>;

const fileOf = <const Path extends `${string}/{name}`>(name: string, path: Path, summary: string) =>
  endpoint({
    name,
    method: "GET",
    path,
    // One name without a leading dot cannot leave the directory.
    patterns: { name: "[A-Za-z0-9][A-Za-z0-9._-]*" },
    access: "public",
    summary,
    answers: { 200: { description: "The file", type: "application/octet-stream" } },
  });

export const releasesApi = {
  install: endpoint({
    name: "install_retrieve",
    method: "GET",
    path: "/install",
    access: "public",
    summary: "The script that installs the program from this control plane",
    answers: { 200: { description: "The script", type: "text/x-shellscript" } },
    errors: ["not_found"],
  }),
  installer: endpoint({
    name: "installer_retrieve",
    method: "GET",
    path: "/api/install/",
    access: "public",
    summary: "The line that installs the program on a new machine",
    answers: { 200: { description: "The line, or why there is none", schema: Installer } },
  }),
  file: fileOf("releases_retrieve", "/releases/{name}", "A file of the release that is handed out"),
  apt: fileOf("releases_apt_retrieve", "/releases/apt/{name}", "A file of the repository for apt"),
  rpm: fileOf("releases_rpm_retrieve", "/releases/rpm/{name}", "A file of the repository for dnf"),
  repodata: fileOf(
    "releases_repodata_retrieve",
    "/releases/rpm/repodata/{name}",
    "An index of the repository for dnf",
  ),
};
