// What programs and archives are called on which system.

import { AppError } from "../errors.ts";

/** The engine's archive for a system and processor, as its releases call it. */
export function archiveName({ platform, arch }: { platform: string; arch: string }): string {
  const processor = ({ x64: "amd64", arm64: "arm64" } as Record<string, string>)[arch];
  if (platform === "darwin") return "nebula-darwin.zip";
  if (platform === "win32" && processor !== undefined) return `nebula-windows-${processor}.zip`;
  if (platform === "linux" && processor !== undefined) return `nebula-linux-${processor}.tar.gz`;
  throw new AppError("failed", `The engine's releases have nothing for ${platform} on ${arch}`);
}

/** A program's file name. */
export function programName(name: string, { platform }: { platform: string }): string {
  return platform === "win32" ? `${name}.exe` : name;
}
