// Windows access lists: SYSTEM and the administrators own the product's files and its pipe; members of the local group
// with the product's name may use the pipe. Written in SDDL, the text form of access lists.

import { createDirectory, wide, withHandle } from "./windows.ts";

const security = {
  ConvertStringSecurityDescriptorToSecurityDescriptorW: {
    args: ["ptr", "u32", "ptr", "ptr"],
    returns: "i32",
  },
  ConvertSecurityDescriptorToStringSecurityDescriptorW: {
    args: ["ptr", "u32", "u32", "ptr", "ptr"],
    returns: "i32",
  },
  ConvertSidToStringSidW: { args: ["ptr", "ptr"], returns: "i32" },
  LookupAccountNameW: { args: ["ptr", "ptr", "ptr", "ptr", "ptr", "ptr", "ptr"], returns: "i32" },
  GetKernelObjectSecurity: { args: ["u64", "u32", "ptr", "u32", "ptr"], returns: "i32" },
  SetKernelObjectSecurity: { args: ["u64", "u32", "u64"], returns: "i32" },
} as const;

let opened: ReturnType<typeof open> | undefined;

/** Opened at the first use, as in windows.ts. */
function advapi() {
  return (opened ??= open());
}

function open() {
  const { dlopen }: typeof import("bun:ffi") = require("bun:ffi");
  return dlopen("advapi32.dll", security).symbols;
}

/** Full control for SYSTEM and Administrators, inherited by all content. Inherits nothing from the parent. */
const administratorsAlone = "O:BAD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)";
/** The same, and full control for the owner. */
const ownersAlone = "D:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;OW)";
/** Rights of a handle: READ_CONTROL, WRITE_DAC. */
const [readControl, writeList] = [0x2_0000, 0x4_0000];
/** Parts of a security descriptor: OWNER_, DACL_ and PROTECTED_DACL_SECURITY_INFORMATION. */
const [ownerPart, listPart, protectedListPart] = [1, 4, 0x8000_0000];
/** SDDL_REVISION_1 */
const revision = 1;

/**
 * The access list of the pipe. Denies access over the network. 0x12019b lets members of the group read and write, but
 * not create a pipe with this name.
 */
export function pipeList(groupSid: string | undefined): string {
  const members = groupSid === undefined ? "" : `(A;;0x12019b;;;${groupSid})`;
  return `D:P(D;;FA;;;NU)(A;;FA;;;SY)(A;;FA;;;BA)${members}`;
}

/** Sets the access list of the pipe. Returns false if that fails. */
export function restrictPipe(name: string, group: string): boolean {
  const descriptor = descriptorOf(pipeList(accountSid(group)));
  const set = (pipe: bigint) =>
    advapi().SetKernelObjectSecurity(pipe, listPart | protectedListPart, descriptor) !== 0;
  return withHandle(name, readControl | writeList, set) ?? false;
}

/** Creates a directory that only administrators can access, from its first moment. False if it exists or that fails. */
export function makeAdministratorsDirectory(path: string): boolean {
  return makeDirectoryWith(path, administratorsAlone);
}

/** Creates a directory that only its owner and administrators can access. False if it exists or that fails. */
export function makeOwnersDirectory(path: string): boolean {
  return makeDirectoryWith(path, ownersAlone);
}

/** Whether SYSTEM, the administrators or this user own it. Files of another owner cannot be trusted. */
export function isAdministratorsOwn(path: string): boolean {
  const found = accessOf(path, "owner");
  const own = accountSid(process.env["USERNAME"] ?? "");
  return found !== undefined && ["O:BA", "O:SY", `O:${own}`].includes(found);
}

/** The owner of a directory or pipe ("O:BA"), or its access list, in SDDL; undefined if it cannot be read. */
export function accessOf(path: string, part: "owner" | "list"): string | undefined {
  const what = part === "owner" ? ownerPart : listPart;
  return withHandle(path, readControl, (handle) => {
    const [descriptor, needed, text] = [new Uint8Array(8192), new Uint32Array(1), new BigUint64Array(1)];
    const c = advapi();
    if (c.GetKernelObjectSecurity(handle, what, descriptor, descriptor.length, needed) === 0)
      return undefined;
    c.ConvertSecurityDescriptorToStringSecurityDescriptorW(descriptor, revision, what, text, null);
    return wideText(text[0]);
  });
}

/** The SID of a local user or group as text; undefined if it does not exist. */
function accountSid(name: string): string | undefined {
  const [sid, domain, kind] = [new Uint8Array(256), new Uint16Array(256), new Uint32Array(1)];
  const [sidLength, domainLength] = [new Uint32Array([sid.length]), new Uint32Array([domain.length])];
  const text = new BigUint64Array(1);
  const c = advapi();
  const found = c.LookupAccountNameW(null, wide(name), sid, sidLength, domain, domainLength, kind);
  return found !== 0 && c.ConvertSidToStringSidW(sid, text) !== 0 ? wideText(text[0]) : undefined;
}

function makeDirectoryWith(path: string, sddl: string): boolean {
  const descriptor = descriptorOf(sddl);
  // Without a descriptor, Windows would inherit the rights of the parent.
  return descriptor !== 0n && createDirectory(path, descriptor);
}

/** A security descriptor, never freed because there are few; 0 if the text is invalid. */
function descriptorOf(sddl: string): bigint {
  const descriptor = new BigUint64Array(1);
  advapi().ConvertStringSecurityDescriptorToSecurityDescriptorW(wide(sddl), revision, descriptor, null);
  return descriptor[0] ?? 0n;
}

/** Text at an address from Windows; undefined for a null pointer. */
function wideText(address: bigint | undefined): string | undefined {
  if (address === undefined || address === 0n) return undefined;
  const { read }: typeof import("bun:ffi") = require("bun:ffi");
  const units: number[] = [];
  for (let at = 0; at < 4096; at += 2) {
    const unit = read.u16(address, at);
    if (unit === 0) break;
    units.push(unit);
  }
  return String.fromCharCode(...units);
}
