// What package managers run before and after they change files. An upgrade restarts only the daemon, which leaves its
// engines running, and lets the control plane hand over to a new process, which fails no request.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { brand, releaseAddressPath } from "../src/brand.ts";
import { controlUnit } from "../src/platform/systemd/control-unit.ts";
import { authTimer, authUnit, daemonUnit, namesUnit } from "../src/platform/systemd/systemd.ts";

const ours = `${namesUnit} ${daemonUnit} ${authTimer} ${authUnit} '${brand.id}-edge@*.service' '${brand.id}@*.service' ${controlUnit}`;

const underSystemd = "[ -d /run/systemd/system ]";

/** Says, from a removal to the next installation, that what was enabled ran before. */
const removedMark = `/var/lib/${brand.id}/removed`;

/** Starts again what a removal stopped: timers, engines, daemon and control plane that are enabled. */
const startEnabled = `if ${underSystemd}; then
	for each in /etc/systemd/system/*.wants/${brand.id}*; do
		[ ! -L "$each" ] || systemctl start --no-block "\${each##*/}" || true
	done
fi`;

/** Group and settings come from the files of the package. */
const settle = `systemd-sysusers ${brand.id}.conf >/dev/null 2>&1 || true
if ${underSystemd}; then
	/usr/lib/systemd/systemd-sysctl 60-${brand.id}.conf >/dev/null 2>&1 || true
	systemctl daemon-reload || true
	systemctl try-restart ${daemonUnit} '${brand.id}-edge@*.service' >/dev/null 2>&1 || true
	systemctl try-reload-or-restart ${controlUnit} >/dev/null 2>&1 || true
fi`;

/** Units of an installation by script, which name another executable, go on when the package is removed. */
const byScript = `grep -hs '^ExecStart=' /etc/systemd/system/${brand.id}*.service | grep '/${brand.executable} ' | grep -vq '=/usr/bin/${brand.executable} '`;

const stop = `if ${underSystemd} && ! ${byScript}; then
	systemctl stop ${ours} >/dev/null 2>&1 || true
	if [ -e /etc/systemd/system/${namesUnit} ]; then ${brand.executable} names --clear >/dev/null 2>&1 || true; fi
fi`;

/** What \`agent setup\` keeps for a control plane to hand out. */
const forgetRelease = `rm -rf ${dirname(releaseAddressPath(`/usr/bin/${brand.executable}`, "linux"))}/release`;

/** What the script's installation took from the package, it writes itself now. */
const forget = `if ${underSystemd}; then
	systemctl daemon-reload || true
	if ${byScript}; then
		$(sed -n 's|^ExecStart=\\(/[^ ]*/${brand.executable}\\) .*|\\1|p' /etc/systemd/system/${brand.id}*.service | head -n 1) install-systemd || true
	fi
fi`;

const shell = (text: string) => `#!/bin/sh\nset -e\n${text}\n`;
const onWords = (words: string, text: string) =>
  shell(`case "$1" in\n${words})\n${text}\n\t;;\nesac\nexit 0`);

/** For dpkg, which gives a word. */
export function debScripts() {
  return {
    postinstall: onWords(
      "configure",
      `${settle}\nif [ -e ${removedMark} ]; then\n${startEnabled}\nfi\nrm -f ${removedMark}`,
    ),
    preremove: onWords(
      "remove | deconfigure",
      `${stop}\n${forgetRelease}\nmkdir -p /var/lib/${brand.id}\n: >${removedMark}`,
    ),
    postremove: purgeScript(),
  };
}

/** For rpm, which gives the number of packages that remain. It has no purge, so data stays. */
export function rpmScripts() {
  return {
    postinstall: shell(`${settle}\nif [ "$1" = 1 ]; then\n${startEnabled}\nfi`),
    preremove: shell(`if [ "$1" = 0 ]; then\n${stop}\n${forgetRelease}\nfi`),
    postremove: shell(forget),
  };
}

/** A purge deletes what \`sh install --uninstall --purge\` deletes, by name, and keeps the data of a control plane. */
function purgeScript(): string {
  const script = readFileSync(join(import.meta.dir, "../install"), "utf8");
  const end = '{ main "$@"; exit; }\n';
  if (!script.endsWith(end)) throw new Error("install: its last line is not as expected");
  const links = `for each in /etc/systemd/system/*.wants/${brand.id}*; do
	case $(readlink "$each") in /usr/lib/systemd/system/${brand.id}* | /lib/systemd/system/${brand.id}*) rm -f "$each" ;; esac
done`;
  return `${script.slice(0, -end.length)}
case "$1" in
remove)
	${forget.replaceAll("\n", "\n\t")}
	;;
purge)
	${links.replaceAll("\n", "\n\t")}
	(main --uninstall --purge --prefix /usr)
	;;
esac
exit 0
`;
}
