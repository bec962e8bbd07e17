// File names of programs and engine archives by system.

import { AppError } from "../base/errors.ts";

/** The name of the engine's archive in its releases. */
export function archiveName({ platform, arch }: { platform: string; arch: string }): string {
  const processor = ({ x64: "amd64", arm64: "arm64" } as Record<string, string>)[arch];
  if (platform === "darwin") return "nebula-darwin.zip";
  if (platform === "win32" && processor !== undefined) return `nebula-windows-${processor}.zip`;
  if (platform === "linux" && processor !== undefined) return `nebula-linux-${processor}.tar.gz`;
  throw new AppError("failed", `The engine has no release for ${platform} on ${arch}`);
}

/** A program's file name. */
export function programName(name: string, { platform }: { platform: string }): string {
  return platform === "win32" ? `${name}.exe` : name;
}
