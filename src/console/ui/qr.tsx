// A QR code, whose encoder is loaded when one is drawn.

import { Loading } from "./parts.tsx";
import { parts, usePart } from "./lazy-parts.ts";

export function Qr(props: { text: string; label: string }) {
  const part = usePart(parts.qr);
  return part === undefined ? <Loading /> : <part.QrPicture {...props} />;
}
