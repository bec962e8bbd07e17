// Five hundred texts that would do harm where a page took them for more than texts: each payload in each surrounding, as
// markup, attributes, URLs, templates, formulas, and with characters that turn, hide or break.

const payloads = [
  `<img src=x onerror="ran=1">`,
  `<script>ran=1</script>`,
  `<svg onload=ran=1>`,
  `<svg><animate onbegin=ran=1 attributeName=x>`,
  `<iframe srcdoc="<script>parent.ran=1</script>">`,
  `<a href="javascript:ran=1">x</a>`,
  `<details open ontoggle=ran=1>`,
  `<math><mtext><style><img src=x onerror=ran=1>`,
  `<style>*{display:none}</style>`,
  `<link rel=stylesheet href=//x.example>`,
  `<meta http-equiv=refresh content="0;//x.example">`,
  `<base href=//x.example>`,
  `<form action=//x.example><button autofocus>`,
  `<object data="javascript:ran=1">`,
  `<input autofocus onfocus=ran=1>`,
  `javascript:ran=1`,
  `data:text/html,<script>ran=1</script>`,
  "${ran=1}",
  "{{constructor.constructor('ran=1')()}}",
  `=HYPERLINK("http://x.example")`,
  `@SUM(1+1)*cmd|' /C calc'!A0`,
  `__proto__`,
  `constructor`,
  `&lt;b&gt;&#x3c;script&#x3e;`,
  `%3Cscript%3Eran=1%3C/script%3E`,
] as const;

const surroundings: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => `">${text}`,
  (text) => `'>${text}`,
  (text) => `</textarea></title>${text}`,
  (text) => `-->${text}<!--`,
  (text) => `]]>${text}`,
  (text) => `\\u003c${text}`,
  (text) => text.toUpperCase(),
  (text) => text.replaceAll(" ", "/"),
  (text) => `\u{1d4d7}\u0301\u0301\u0301${text}`,
  (text) => `\u05d0\u0627${text}`,
  (text) => `${text}${"a".repeat(Math.max(0, 90 - text.length))}`,
  (text) => `\u{1f468}${text}`,
  (text) => `${text};//`,
  (text) => `\`${text}\``,
  (text) => `${text}${text}`,
  (text) => `x onclick=ran=1 ${text}`,
  (text) => `<${text}`,
  (text) => `${text}<`,
  (text) => `/*${text}*/`,
];

/** At most `max` UTF-16 units each. */
export function hostileTexts(max: number): string[] {
  return payloads.flatMap((payload) =>
    surroundings.map((around) => around(payload).slice(0, max).toWellFormed()),
  );
}
