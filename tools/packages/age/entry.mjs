// What the console's page uses of age-encryption.
export { Decrypter, Encrypter } from "age-encryption";
