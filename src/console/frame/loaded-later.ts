// What other pages load only later: the palette, QR codes, and the pages before anybody is signed in. One file of all.

export { Links } from "../pages/links.tsx";
export { Palette } from "./palette.tsx";
export { QrPicture } from "../ui/qr-picture.tsx";
export { SignIn } from "./sign-in.tsx";
