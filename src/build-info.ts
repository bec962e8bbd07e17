// Facts about this build. `bun build.ts` fills them in; a run from source has the defaults.

declare const BUILD_VERSION: string | undefined;
declare const BUILD_COMMIT: string | undefined;
declare const BUILD_TARGET: string | undefined;
declare const BUILD_RELEASE_KEYS: readonly string[] | undefined;

export const buildInfo = {
  version: typeof BUILD_VERSION === "undefined" ? "0.0.0-source" : BUILD_VERSION,
  commit: typeof BUILD_COMMIT === "undefined" ? "unknown" : BUILD_COMMIT,
  /** Bun's name of the target, `bun-linux-x64`. */
  target: typeof BUILD_TARGET === "undefined" ? "source" : BUILD_TARGET,
  /** Minisign public keys added by the build to those of brand.ts. */
  releaseKeys: typeof BUILD_RELEASE_KEYS === "undefined" ? [] : BUILD_RELEASE_KEYS,
} as const;
