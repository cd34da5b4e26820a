// Public keys made with ssh-keygen, with the fingerprints that it prints. Their private keys were not kept.

export const KEYS = {
  ed: {
    line: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAasdxWAE90f75umTi2MtxLb3iENVeFOId10I1a4pFGX you@host',
    fingerprint: 'SHA256:HI4bgzOTzhxLlpHDh1Tt8iX1Rr6Bi8QRPsmU1oPhEQs',
  },
  ec256: {
    line: 'ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBF5p0yo7IsGxhOCFGd+fitI651urblPlKMOpSkVMqz23K1Jf7OgZ3Cre+zqCL7BgfF1V8gWeVmzz7lMuHm/t96I= c',
    fingerprint: 'SHA256:obRcJAmbZ+uxH6Y4BGoCetYohnCYPsuT7+8DY6EtqOQ',
  },
  ec384: {
    line: 'ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBI/AnSo126ZfIabEFenKDBiTqcA6TqcgaetooLsA+4FlUr746fF1IhDLxDAkJzaYqIqDEYzc7snr86yRf5sDDLNa2fU57c5/PXQYJp0IH05xVfQ3PWNFoKYBoHlwcms8LQ== c',
    fingerprint: 'SHA256:/6k16a5imJqboEhjB/CJ0Kc3SeG2lKlUmYNEvy7VI88',
  },
  ec521: {
    line: 'ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBADoWF1XkGiq8n25E1upfrgad7AUiJUXKyuwCbWdbIoyYzDGEBnlOeEBNvBWS7auDOIDbuK9vHl3xsUv0R1L4H0n9gHvf8xG3k/DqKyhU6VOeLDBdOCoP3cnhHHGC0TaJmpw5cBuRqEOtVd4WjrRjHbTHJkOv7c30mJXEktTprNYFVT4+w== c',
    fingerprint: 'SHA256:VuxVxRfODeuXpN01KKNDaj4os3lz+WwsSuZ0BO2RRUk',
  },
  rsa2047: {
    line: 'ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAHn/r7HPix+h9D4mSHogzkU8D24zW0Sn0TRqja7cQwUP9o/dkVN6c/eji7osZmrbniEn0wpuySJb4tHtMsjAyEqSanQhSikWJlmDoq22QX/W5bLZJ5y/5Mwp4WuLbVtMiN40f+UJ/Kugi0kxKuamY2E1BeNmk8zAtZJXA2jdZAzv+fZuBo7xu5nJ8myM8Znz3F7E1jJyHpSeeUeZ+nhq6FDBsbbisi3Ove51c/EKNila9/IWKZINmIBkG6+lGDqa/XkgnvetCi17tOZxWctt1bjcqMdSrr3NtsTwVN+2Bw07xIc05usjaZeSj/7JvR2Gcx4hWZM5URirTeVhxY8S0vc= c',
    fingerprint: 'SHA256:xEYZStb6010GARyYEC+aROQDq5t8yZjetqN+8ad7pR8',
  },
  rsa2048: {
    line: 'ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDVGc+IbtMGNKERu9NG05MCEq1ESM63zOA2wpF/FJ37p56si2FhXpz+iv3usM6XK+9XMnuu59iYoBPZXxKyqMVolXg3bk4nlskNG0HrBOz0/n4jw71q3i62RoM13iT0wRvOHeN45UCbqhlPGffXpecy92Iz0kGhgf3WWsxFVTaPc0SomlbEpkVc4lUKJg0YwO0E/9g7iG+2FXpULAw6GT59XeINnxObHyX5e1n9MAdsog3run7F/AsJ9+Y5ByGEftdtgGzloVrkAGBhgrL4OuPj9K3elIArD0j1GfymY6p2smfjg4OvA6E/cmMXhSjiFe3AENRbagmSsbnzhvL3k0Sl c',
    fingerprint: 'SHA256:yvQRQNMOqhDFmJjGtr52p80JQJBT0uggGdDCHA59cuM',
  },
} as const;
