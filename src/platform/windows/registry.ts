// Keys and values below HKEY_LOCAL_MACHINE, and what tells Windows that rules for name resolution have changed.

import { defer } from "../../base/defer.ts";
import { dlopen, FFIType } from "bun:ffi";
import { AppError } from "../../base/errors.ts";
import { wide } from "./windows.ts";

const { i32, u32, u64, ptr } = FFIType;

const symbols = {
  RegCreateKeyExW: { args: [u64, ptr, u32, ptr, u32, u32, ptr, ptr, ptr], returns: i32 },
  RegOpenKeyExW: { args: [u64, ptr, u32, u32, ptr], returns: i32 },
  RegEnumKeyExW: { args: [u64, u32, ptr, ptr, ptr, ptr, ptr, ptr], returns: i32 },
  RegQueryValueExW: { args: [u64, ptr, ptr, ptr, ptr, ptr], returns: i32 },
  RegSetValueExW: { args: [u64, ptr, u32, u32, ptr, u32], returns: i32 },
  RegDeleteTreeW: { args: [u64, ptr], returns: i32 },
  RegCloseKey: { args: [u64], returns: i32 },
} as const;

let opened: ReturnType<typeof dlopen<typeof symbols>>["symbols"] | undefined;

function advapi() {
  return (opened ??= dlopen("advapi32.dll", symbols).symbols);
}

/** Sign-extended, as a handle of 64 bits. */
const localMachine = 0xffff_ffff_8000_0002n;
// From winnt.h and winerror.h: KEY_READ and KEY_WRITE; ERROR_FILE_NOT_FOUND and ERROR_NO_MORE_ITEMS; REG_SZ, REG_DWORD and
// REG_MULTI_SZ.
const [readAccess, writeAccess] = [0x2_0019, 0x2_0006];
const [notFound, noMoreItems] = [2, 259];
const [textType, numberType, listType] = [1, 4, 7];
/** A longer value counts as missing. */
const maxBytes = 64 * 1024;

/** REG_SZ, REG_DWORD, REG_MULTI_SZ. */
export type RegistryValue = string | number | readonly string[];
export type RegistryValues = Readonly<Record<string, RegistryValue>>;

export type Registry = {
  /** Undefined if the key does not exist. */
  keysIn(path: string): string[] | undefined;
  /** These values of a key, without those that are missing or of another type. */
  read(path: string, names: readonly string[]): RegistryValues;
  /** Creates the key if it is missing. */
  write(path: string, values: RegistryValues): void;
  /** Deletes the key with all that is in it. A missing key is no failure. */
  remove(path: string): void;
  /** Name resolution uses changed rules from now on. `inPolicy`: rules of the group policy changed too. */
  announce(inPolicy: boolean): void;
};

export const windowsRegistry: Registry = {
  keysIn: (path) => withKey(path, keyNames),
  read: (path, names) =>
    withKey(path, (key) =>
      Object.fromEntries(
        names.flatMap((name): [string, RegistryValue][] => {
          const value = valueOf(key, name);
          return value === undefined ? [] : [[name, value]];
        }),
      ),
    ) ?? {},
  write(path, values) {
    const handle = new BigUint64Array(1);
    const c = advapi();
    check(
      c.RegCreateKeyExW(localMachine, wide(path), 0, null, 0, writeAccess, null, handle, null),
      "create",
      path,
    );
    using _ = defer(() => c.RegCloseKey(handle[0] ?? 0n));
    for (const [name, value] of Object.entries(values)) {
      const [type, bytes] = encode(value);
      check(c.RegSetValueExW(handle[0] ?? 0n, wide(name), 0, type, bytes, bytes.length), "write", path);
    }
  },
  remove(path) {
    const code = advapi().RegDeleteTreeW(localMachine, wide(path));
    if (code !== notFound) check(code, "remove", path);
  },
  announce,
};

function withKey<T>(path: string, work: (key: bigint) => T): T | undefined {
  const handle = new BigUint64Array(1);
  const c = advapi();
  const code = c.RegOpenKeyExW(localMachine, wide(path), 0, readAccess, handle);
  if (code === notFound) return undefined;
  check(code, "open", path);
  const key = handle[0] ?? 0n;
  using _ = defer(() => c.RegCloseKey(key));
  return work(key);
}

function keyNames(key: bigint): string[] {
  const names: string[] = [];
  for (let at = 0; ; at++) {
    // In UTF-16 units: the name of a key has at most 255, and a null follows.
    const [name, length] = [Buffer.alloc(512), new Uint32Array([256])];
    const code = advapi().RegEnumKeyExW(key, at, name, length, null, null, null, null);
    if (code === noMoreItems) return names;
    check(code, "list", "keys");
    names.push(name.toString("utf16le", 0, (length[0] ?? 0) * 2));
  }
}

function valueOf(key: bigint, name: string): RegistryValue | undefined {
  const [type, bytes, length] = [new Uint32Array(1), Buffer.alloc(maxBytes), new Uint32Array([maxBytes])];
  if (advapi().RegQueryValueExW(key, wide(name), null, type, bytes, length) !== 0) return undefined;
  if (type[0] === numberType) return bytes.readUInt32LE(0);
  const texts = bytes.toString("utf16le", 0, length[0] ?? 0).split("\0");
  if (type[0] === textType) return texts[0] ?? "";
  return type[0] === listType ? texts.filter((text) => text !== "") : undefined;
}

function encode(value: RegistryValue): [number, Uint8Array] {
  if (typeof value === "string") return [textType, wide(value)];
  // `wide` adds the empty text that ends a list.
  if (typeof value !== "number") return [listType, wide(value.map((each) => `${each}\0`).join(""))];
  return [numberType, new Uint8Array(new Uint32Array([value]).buffer)];
}

function check(code: number, verb: string, path: string): void {
  if (code === 0) return;
  throw new AppError("failed", `Cannot ${verb} HKLM\\${path} in the registry: Windows error ${code}`, {
    hint: "See which program or policy protects this key: regedit.",
  });
}

/** Best effort: without it, Windows notices changes later. */
function announce(inPolicy: boolean): void {
  const force = 1;
  const tryCall = (work: () => void) => {
    try {
      work();
    } catch {
      // The library lacks this function.
    }
  };
  if (inPolicy)
    tryCall(() => {
      const refresh = { RefreshPolicyEx: { args: [i32, u32], returns: i32 } } as const;
      dlopen("userenv.dll", refresh).symbols.RefreshPolicyEx(1, force);
    });
  // Windows remembers that a name did not exist.
  tryCall(() => {
    const flush = { DnsFlushResolverCache: { args: [], returns: i32 } } as const;
    dlopen("dnsapi.dll", flush).symbols.DnsFlushResolverCache();
  });
}
